// Control characters: a reader does not see them, and they change how the rest is read.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\u3164\ufeff\u{e0000}-\u{e007f}]/gu;
/** More marks above one another than any script has would cover the lines around. */
const MARKS = /(\p{M}{4})\p{M}+/gu;

const unit = (code: number): string => `\\u${code.toString(16).padStart(4, "0")}`;
const named = (sign: string): string => Array.from({ length: sign.length }, (_, at) => unit(sign.charCodeAt(at))).join("");

/** The text with an escape in the place of each. In JSON, the escape has the same meaning. */
export const withoutHidden = (text: string): string => text.replace(HIDDEN, named);

/** The text without control characters and piled-up marks, for people. */
export const plain = (text: string): string => withoutHidden(text).replace(MARKS, "$1…");
