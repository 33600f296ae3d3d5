// A list of things with names, and the drawer of one of them: queues or workers.
import type { ComponentChildren } from "preact";
import { mayAct, withQuery } from "../api";
import { TopBar } from "../frame/top";
import type { Page } from "../model";
import { Drawer } from "../parts/drawer";
import { FindField, useFind } from "../parts/find";
import { Menu, VerbButton, type Verb } from "../parts/menu";
import { Loading, Table, type Column } from "../parts/table";
import { cut, many, Name, plain } from "../parts/text";
import { Problem } from "../parts/toasts";
import { usePoll } from "../poll";
import { href, navigate, place, setQuery } from "../router";

interface Named {
  readonly name: string;
}

export interface ListingProps<Row> {
  readonly title: string;
  /** The name of one, such as `queue`; the page and the path of the API have its plural. */
  readonly noun: string;
  /** The text that the filter searches. */
  readonly words: (row: Row) => string;
  readonly empty: ComponentChildren;
  readonly state: (row: Row) => ComponentChildren;
  /** Those after the name and the state; the drawer has them as facts, but not the wide one. */
  readonly columns: readonly Column<Row>[];
  readonly verb: (row: Row) => Omit<Verb, "done">;
  /** The body of the drawer. */
  readonly body: (row: Row) => ComponentChildren;
}

/** 2 before 10. */
const naturally = new Intl.Collator("en", { numeric: true }).compare;

/** A cursor right before a name: it is the first of that page, or nearly so. */
const before = (name: string): string => `${name.slice(0, -1)}${String.fromCharCode(name.charCodeAt(name.length - 1) - 1)}~`;

export function Listing<Row extends Named>({ title, noun, words, empty, state, columns, verb, body }: ListingProps<Row>) {
  const { parts: [page = "", name], query } = place.value;
  const { cursor } = query;
  const path = `v1/${page}`;
  const { data, error, again } = usePoll<Page<Row>>(withQuery(path, { cursor }), 1500);
  const find = useFind(data?.items, words);
  const rows = find.rows && [...find.rows].sort((one, other) => naturally(one.name, other.name));
  const named = (of: Page<Row> | null): Row | undefined => of?.items.find((row) => row.name === name);
  // The list shows one page, and the address names any of them.
  const other = usePoll<Page<Row>>(name && data && !named(data) ? withQuery(path, { cursor: before(name) }) : null);
  const one = named(data) ?? named(other.data);
  const verbOf = (row: Row): Verb => ({ ...verb(row), done: () => (again(), other.again()) });
  const menu = (row: Row) => <Menu small label={`Actions on ${cut(plain(row.name), 60)}`} verbs={[verbOf(row)]} />;
  return (
    <>
      <TopBar title={name ?? title}>{title}</TopBar>
      <Problem error={error} />
      <section class="panel part" aria-label={`List of ${page}`}>
        <header><FindField find={find} of={noun === "worker" ? "Name or queue" : "Name"} part={Boolean(cursor ?? data?.next_cursor)} /><span class="note push">{data ? many(data.items.length, noun) : ""}</span></header>
        <Table label={title} link rows={rows} rowKey={(row) => row.name} failed={error !== null} selected={(row) => row.name === name}
          empty={find.empty ?? empty} columns={[
          { head: title.slice(0, -1), names: true, cell: (row) => <b><a href={href([page, row.name], query)}><Name text={row.name} max={60} /></a></b> },
          { head: "State", cell: state },
          ...columns,
          { head: "", kind: "wide", cell: (row) => (mayAct() ? <span class="row-buttons end"><VerbButton verb={verbOf(row)} small />{menu(row)}</span> : null) },
        ]} />
      </section>
      <Pages first={Boolean(cursor)} next={data?.next_cursor} />
      {name === undefined ? null : (
        <Drawer noun={noun} name={name} names={rows?.map((row) => row.name) ?? []} open={(to) => navigate([page, to], query)} state={one ? state(one) : null} facts={one ? <dl class="facts line">{columns.filter(({ kind }) => kind !== "wide").map(({ head, cell }) => <div><dt>{head}</dt><dd>{cell(one)}</dd></div>)}</dl> : null}>
          <div class="body" key={name}>{one ? body(one) : other.data ? "Not found. It may have been removed." : <><Problem error={other.error} /><Loading /></>}</div>
          {one && mayAct() ? <footer role="group" aria-label={`Actions on the ${noun}`}><VerbButton verb={verbOf(one)} /><span class="push">{menu(one)}</span></footer> : null}
        </Drawer>
      )}
    </>
  );
}

export function Pages({ first, next }: { first: boolean; next: string | null | undefined }) {
  if (!first && !next) return null;
  return (
    <div class="buttons" role="group" aria-label="Pages">
      <button disabled={!first} onClick={() => setQuery({ cursor: null }, "keep")}>First</button>
      <button disabled={!next} onClick={() => setQuery({ cursor: next }, "keep")}>Next</button>
    </div>
  );
}
