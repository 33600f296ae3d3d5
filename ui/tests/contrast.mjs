// The colours of style.css: each pair of text and ground, and each mark, has enough contrast in both themes.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const css = readFileSync(new URL("../src/style.css", import.meta.url), "utf8");
const blocks = [...css.matchAll(/color-scheme: (light|dark);([^}]*)\}/g)];

function luminance(hex) {
  const [red, green, blue] = hex.slice(1).match(/../g).map((two) => {
    const part = parseInt(two, 16) / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function ratio(one, other) {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

/** All pairs of one of the first with one of the others. */
const pairs = (texts, grounds) => texts.flatMap((text) => grounds.map((ground) => [text, ground]));
const STATES = ["ok", "bad", "warn", "run", "hold", "mute"];
const TEXTS = [
  ...pairs(["text", "dim", "faint"], ["bg", "surface", "sunken", "hover", "raised", "accent-tint"]),
  ...pairs(["accent"], ["bg", "surface", "raised", "hover", "accent-tint"]),
  ["on-accent", "accent"], ["on-bad", "bad-solid"], ["bg", "text"],
  ...STATES.flatMap((state) => pairs([state], [`${state}-tint`, "surface", "raised", "bg", "hover"])),
  ...pairs(["text", "dim"], ["bad-tint", "warn-tint", "hold-tint"]),
  ...pairs(["accent"], ["bad-tint"]),
];
const MARKS = [
  ...pairs(["control", "accent", "c1", "c2", "c3", "c4", "bad-fill", "run-fill", "hold-fill"], ["surface"]),
  ["control", "bg"], ["accent", "accent-tint"],
];

test("there are one light block and two equal dark ones", () => {
  assert.deepEqual(blocks.map(([, scheme]) => scheme), ["light", "dark", "dark"]);
  const [, one, other] = blocks.map(([, , body]) => body.split("\n").map((line) => line.trim()).filter(Boolean));
  assert.deepEqual(one, other);
});

for (const [[, scheme, body], at] of blocks.map((block, at) => [block, at])) {
  test(`texts and marks have contrast: ${scheme} ${at}`, () => {
    const colours = Object.fromEntries([...body.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map(([, name, hex]) => [name, hex]));
    for (const [least, list] of [[4.5, TEXTS], [3, MARKS]]) {
      for (const [text, ground] of list) {
        const got = ratio(colours[text], colours[ground]);
        assert.ok(got >= least, `${text} on ${ground}: ${got.toFixed(2)}, less than ${least}`);
      }
    }
  });
}
