// The editor of statements: submits them as queries, follows these, and shows their rows. It speaks the HTTP interface that programs have,
// docs/queries.md. Whatever comes from the server is put into the page as text.
"use strict";

const ROWS_OF_A_PAGE = 500;
const FORMATS = ["csv", "tsv", "json", "jsonl", "parquet", "arrow", "fits"];
const QUERIES_LISTED = 20;
const QUERIES_LOOKED_AT = 200;
const RUNNING = ["QUEUED", "EXECUTING"];
const FIRST_WAIT = 100;
const LONGEST_WAIT = 2000;
/** MySQL's number for a statement that cannot be submitted. */
const NOT_SUPPORTED = 1235;

const element = (id) => document.getElementById(id);

/** The query that is shown: its number, and the first of the rows that are. */
let shown = { number: null, offset: 0 };
/** The name under which the user's queries are listed. */
let user = "http";
/** The databases of the user's own tables: first the user's, then those of groups. */
let ownDatabases = [];

/** An element with some text. */
function make(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

/** A button that does something. */
function button(text, action) {
  const made = make("button", text);
  made.type = "button";
  made.addEventListener("click", () => attempt(action));
  return made;
}

/** Sends a request. Throws the server's sentence if it fails. */
async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Error("The server does not answer.");
  }
  if (response.ok) {
    return response;
  }
  const text = await response.text();
  if (response.status === 401) {
    throw new Error(`${text.trim()}\nLog in at ${new URL("login", location.href)}`);
  }
  let told = { error: text.trim() };
  try {
    told = JSON.parse(text);
  } catch {
    // It is a sentence already.
  }
  const failure = new Error(told.error || `The server answers with status ${response.status}.`);
  failure.code = told.code;
  throw failure;
}

/** The rows of a statement that takes no time, as objects. */
async function rowsOf(statement) {
  const body = JSON.stringify({ statement });
  const response = await ask("sql?format=jsonl", { method: "POST", body });
  const lines = (await response.text()).split("\n").filter((line) => line !== "");
  return lines.map((line) => JSON.parse(line));
}

/** Does something and shows why it cannot be done. */
async function attempt(action) {
  try {
    await action();
  } catch (error) {
    element("query").hidden = false;
    element("error").hidden = false;
    element("error").textContent = error.message;
  }
}

/** A number of rows in words. */
function rowCount(count) {
  return `${Number(count).toLocaleString()} ${Number(count) === 1 ? "row" : "rows"}`;
}

const quoted = (text) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "''")}'`;

/** A name of a database, a table or a column as a statement has it. */
const identifier = (name) => `\`${name.replaceAll("`", "``")}\``;

/** A table as a statement has it, in the user's own database if none is named. */
function tableName(text) {
  const [, database, table] = /^(?:([^.]*)\.)?(.*)$/s.exec(text.trim());
  if (table === "") {
    throw new Error("Give the table a name.");
  }
  return `${identifier(database ?? ownDatabases[0])}.${identifier(table)}`;
}

/** Says what was done. */
function say(text) {
  clear();
  element("state").textContent = text;
}

// --- Tables

async function listTables() {
  const tables = await rowsOf(
    "SELECT TABLE_SCHEMA AS d, TABLE_NAME AS t, TABLE_ROWS AS n, TABLE_COMMENT AS c FROM information_schema.TABLES" +
      " WHERE TABLE_SCHEMA NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys') ORDER BY d, t",
  );
  const databases = new Map();
  for (const table of tables) {
    if (!databases.has(table.d)) {
      databases.set(table.d, []);
    }
    databases.get(table.d).push(table);
  }
  const chosen = element("database").value;
  element("database").replaceChildren(...[...databases.keys()].map((name) => new Option(name)));
  if (databases.has(chosen)) {
    element("database").value = chosen;
  }
  element("tables").replaceChildren(
    ...[...databases].map(([name, list]) => {
      const database = make("details");
      database.open = databases.size === 1;
      database.append(make("summary", name), ...list.map(tableEntry));
      return database;
    }),
  );
  if (tables.length === 0) {
    element("tables").replaceChildren(make("p", "There are no tables that you may read.", "quiet"));
  }
}

function tableEntry(table) {
  const entry = make("details");
  entry.dataset.name = `${table.d}.${table.t}`.toLowerCase();
  const summary = make("summary", table.t);
  if (table.n !== null) {
    summary.append(make("span", ` ${rowCount(table.n)}`, "quiet"));
  }
  summary.title = table.c ?? "";
  entry.append(summary);
  const fill = async () => {
    const columns = await rowsOf(
      "SELECT COLUMN_NAME AS name, COLUMN_TYPE AS type, COLUMN_COMMENT AS comment FROM information_schema.COLUMNS" +
        ` WHERE TABLE_SCHEMA = ${quoted(table.d)} AND TABLE_NAME = ${quoted(table.t)} ORDER BY ORDINAL_POSITION`,
    );
    const list = make("ul");
    for (const column of columns) {
      const item = make("li");
      const name = button(column.name, () => insert(column.name));
      name.title = column.comment ?? "";
      item.append(name, make("span", ` ${column.type}`, "quiet"));
      list.append(item);
    }
    entry.append(button("First rows", () => firstRows(table)), list);
  };
  entry.addEventListener("toggle", () => attempt(fill), { once: true });
  return entry;
}

/** Puts a name where the cursor is. */
function insert(name) {
  const area = element("statement");
  area.setRangeText(name, area.selectionStart, area.selectionEnd, "end");
  area.focus();
}

function firstRows(table) {
  element("dialect").value = "mysql";
  element("database").value = table.d;
  element("statement").value = `SELECT * FROM ${identifier(table.t)} LIMIT 10`;
  return submit(element("statement").value);
}

function filterTables() {
  const wanted = element("wanted").value.trim().toLowerCase();
  for (const entry of element("tables").querySelectorAll("details[data-name]")) {
    entry.hidden = !entry.dataset.name.includes(wanted);
    if (wanted !== "" && !entry.hidden) {
      entry.parentElement.open = true;
    }
  }
}

// --- Tables of one's own

async function listOwn() {
  const me = await (await ask("me")).json();
  user = me.user ?? "http";
  ownDatabases = me.databases;
  element("user").textContent = me.user ?? "";
  element("own").hidden = ownDatabases.length === 0;
  element("own-tables").replaceChildren(...me.tables.map(ownEntry));
}

function ownEntry(table) {
  const entry = make("details");
  entry.dataset.own = table.name;
  const kept = table.expires === null ? "" : `, kept until ${table.expires.slice(0, 10)}`;
  const names = make("input");
  names.placeholder = "Users, groups or PUBLIC";
  names.setAttribute("aria-label", `Who reads ${table.name}`);
  const share = async (word) => {
    const body = new URLSearchParams({ [word]: names.value });
    await ask(`tables/${encodeURIComponent(table.name)}`, { method: "POST", body });
    say(word === "grant" ? `${names.value} may read ${table.name}.` : `The grant of ${table.name} to ${names.value} is taken back.`);
  };
  const drop = () => {
    element("dialect").value = "mysql";
    element("statement").value = `DROP TABLE ${tableName(table.name)}`;
    element("statement").focus();
  };
  const buttons = [button("Let read", () => share("grant")), button("Take back", () => share("revoke")), button("Drop", drop)];
  const actions = make("p");
  actions.append(...buttons.flatMap((one) => [one, " · "]).slice(0, -1));
  entry.append(make("summary", table.name), make("p", `${table.bytes.toLocaleString()} bytes${kept}`, "quiet"), names, actions);
  return entry;
}

/** Makes a table of a file. */
async function upload() {
  const [file] = element("file").files;
  if (file === undefined) {
    throw new Error("Choose a file in CSV, TSV, FITS, VOTable or Parquet.");
  }
  const name = element("file-table").value.trim();
  if (name === "") {
    throw new Error("Give the table a name.");
  }
  say(`${file.name} is sent, ${file.size.toLocaleString()} bytes ...`);
  const sent = await ask(`tables/${encodeURIComponent(name)}`, { method: "PUT", body: file }).catch((error) => {
    say("");
    throw error;
  });
  const { table, rows_added: rows } = await sent.json();
  say(`${table} has ${rowCount(rows)}.`);
  await lookUpTables();
}

/** Keeps the result of a query as a table. */
async function keep(number, name) {
  await submit(`CREATE TABLE ${tableName(name)} AS SELECT * FROM qserv_result(${number})`, "mysql");
}

function lookUpTables() {
  return Promise.all([listTables(), listOwn()]);
}

// --- Queries

async function submit(statement, dialect = element("dialect").value) {
  clear();
  const database = element("database").value || undefined;
  const body = JSON.stringify({ statement, dialect, database });
  let response;
  try {
    response = await ask("queries", { method: "POST", body });
  } catch (error) {
    // What changes a table is done at once.
    if (error.code !== NOT_SUPPORTED || !(await change(body))) {
      throw error;
    }
    return;
  }
  const query = await response.json();
  location.hash = `query=${query.id}`;
  await follow(query.id);
}

/** Executes a statement that changes a table, and shows of how many rows. Returns whether it was one. */
async function change(body) {
  const response = await ask("sql", { method: "POST", body });
  const { rows_changed: rows } = await response.json();
  if (rows === undefined) {
    return false;
  }
  say(`${rowCount(rows)} changed.`);
  const warnings = JSON.parse(response.headers.get("Meridian-Warnings") ?? "[]");
  element("warnings").hidden = warnings.length === 0;
  element("warnings").replaceChildren(...warnings.map((text) => make("li", text)));
  await lookUpTables();
  return true;
}

/** Takes what is known of the former query off the page. */
function clear() {
  shown = { number: null, offset: 0 };
  element("query").hidden = false;
  for (const id of ["error", "warnings", "files", "pages", "progress"]) {
    element(id).hidden = true;
  }
  element("state").textContent = "";
  element("rows").replaceChildren();
}

/** Follows a query until it has ended, or another one is shown. */
async function follow(number) {
  clear();
  shown.number = number;
  element("cancel").disabled = false;
  let wait = FIRST_WAIT;
  try {
    for (;;) {
      const query = await (await ask(`queries/${number}`)).json();
      if (shown.number !== number) {
        return;
      }
      showState(query);
      if (!RUNNING.includes(query.state)) {
        if (query.state === "COMPLETED") {
          showFiles(number);
          await showRows(0);
          if (/^\s*create\b/i.test(query.statement)) {
            await lookUpTables();
          }
        }
        break;
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(wait * 1.5, LONGEST_WAIT);
    }
  } finally {
    if (shown.number === number) {
      element("cancel").disabled = true;
    }
    await listQueries();
  }
}

function showState(query) {
  const seconds = (from, to) => ((to ? Date.parse(to) : Date.now()) - Date.parse(from)) / 1000;
  const parts = [`Query ${query.id}: ${query.state}`];
  if (query.state === "QUEUED") {
    parts.push(`place ${query.queue_place ?? "?"} of the queue`);
  }
  if (query.state === "EXECUTING") {
    parts.push(`${query.pieces_done} of ${query.pieces} pieces`);
    if (query.seconds_left !== null) {
      parts.push(`about ${Math.ceil(query.seconds_left)} s left`);
    }
  }
  if (query.state !== "QUEUED") {
    parts.push(rowCount(query.rows));
  }
  if (query.started !== null && query.ended !== null) {
    parts.push(`${seconds(query.started, query.ended).toFixed(2)} s`);
  }
  element("state").textContent = parts.join(", ");
  if (query.state === "EXECUTING") {
    element("state").append(" ", button("Result so far", () => showRows(0, true)));
  }
  const progress = element("progress");
  progress.hidden = !RUNNING.includes(query.state);
  progress.value = query.pieces === 0 ? 0 : query.pieces_done / query.pieces;
  element("error").hidden = query.error === null;
  element("error").textContent = query.error ?? "";
  if (query.warning_count > 0) {
    element("warnings").hidden = false;
    element("warnings").replaceChildren(make("li", `${query.warning_count} warnings: SHOW WARNINGS in a MySQL client, after reading qserv_result(${query.id})`));
  }
}

/** Where the result can be saved from. */
function showFiles(number) {
  const links = FORMATS.map((format) => {
    const link = make("a", format);
    link.href = `queries/${number}/result?format=${format}`;
    link.download = `query-${number}.${format}`;
    return link;
  });
  element("files").hidden = false;
  element("files").replaceChildren("Save as ", ...links.flatMap((link) => [link, " "]));
  if (ownDatabases.length > 0) {
    const name = make("input");
    name.id = "kept-name";
    name.placeholder = `A name in ${ownDatabases[0]}`;
    name.setAttribute("aria-label", "Name of the table");
    element("files").append("or ", name, " ", button("Keep as a table", () => keep(number, name.value)));
  }
}

async function showRows(offset, isPartial = false) {
  const number = shown.number;
  const path = `queries/${number}/result?format=csv&offset=${offset}&limit=${ROWS_OF_A_PAGE}${isPartial ? "&partial=true" : ""}`;
  const records = readCsv(await (await ask(path)).text());
  if (shown.number !== number) {
    return;
  }
  shown.offset = offset;
  const [names, ...rows] = records;
  element("rows").replaceChildren(tableOf(names.map((name) => name ?? ""), rows));
  const last = offset + rows.length;
  element("pages").hidden = isPartial || (offset === 0 && rows.length < ROWS_OF_A_PAGE);
  element("earlier").disabled = offset === 0;
  element("later").disabled = rows.length < ROWS_OF_A_PAGE;
  element("shown").textContent = rows.length === 0 ? "no more rows" : `rows ${(offset + 1).toLocaleString()} to ${last.toLocaleString()}`;
}

function tableOf(names, rows) {
  const table = make("table");
  const head = table.createTHead().insertRow();
  head.append(...names.map((name) => make("th", name)));
  const isNumber = names.map((_, at) => rows.every((row) => row[at] === null || /^[-+]?(\d|\.\d|NaN|inf)/i.test(row[at])));
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((value, at) => {
      line.append(value === null ? make("td", "NULL", "null") : make("td", value, isNumber[at] ? "number" : ""));
    });
  }
  return table;
}

/**
 * The records of a text in CSV as the server writes it: a field without quotes and characters is NULL, here null, and "" an empty text.
 */
function readCsv(text) {
  const records = [];
  let record = [];
  let at = 0;
  while (at < text.length) {
    let value = null;
    if (text[at] === '"') {
      value = "";
      for (at += 1; at < text.length; at += 1) {
        if (text[at] !== '"') {
          value += text[at];
        } else if (text[at + 1] === '"') {
          value += '"';
          at += 1;
        } else {
          at += 1;
          break;
        }
      }
    } else {
      const rest = /[,\r\n]/g;
      rest.lastIndex = at;
      const end = rest.exec(text)?.index ?? text.length;
      value = end === at ? null : text.slice(at, end);
      at = end;
    }
    record.push(value);
    if (text[at] === ",") {
      at += 1;
      if (at === text.length || text[at] === "\n" || text[at] === "\r") {
        record.push(null);
      } else {
        continue;
      }
    }
    at += text.startsWith("\r\n", at) ? 2 : 1;
    records.push(record);
    record = [];
  }
  return records;
}

async function explain() {
  clear();
  const body = JSON.stringify({
    statement: `EXPLAIN ${element("statement").value}`,
    dialect: element("dialect").value,
    database: element("database").value || undefined,
  });
  const response = await ask("sql?format=jsonl", { method: "POST", body });
  const lines = (await response.text()).split("\n").filter((line) => line !== "");
  element("rows").replaceChildren(...lines.flatMap((line) => Object.values(JSON.parse(line)).map((text) => make("pre", String(text)))));
}

async function cancel() {
  await ask(`queries/${shown.number}`, { method: "DELETE" });
}

// --- Former queries

async function listQueries() {
  const response = await ask(`queries?limit=${QUERIES_LOOKED_AT}&user=${encodeURIComponent(user)}`);
  // Those of connections have no results that are kept.
  const queries = (await response.json()).queries.filter((query) => query.mode === "ASYNC").slice(0, QUERIES_LISTED);
  const table = make("table");
  for (const query of queries) {
    const line = table.insertRow();
    line.insertCell().append(button(String(query.id), () => show(query.id)));
    line.append(make("td", query.state), make("td", query.submitted.replace("T", " ").slice(0, 19)), make("td", rowCount(query.rows), "number"));
    line.append(make("td", query.statement.replaceAll(/\s+/g, " ").slice(0, 200)));
  }
  element("history").replaceChildren(queries.length === 0 ? make("p", "None yet.", "quiet") : table);
}

/** Shows a query of the list, with its statement to change it. */
async function show(number) {
  const query = await (await ask(`queries/${number}`)).json();
  element("statement").value = query.statement;
  element("dialect").value = query.dialect;
  if (query.database !== null) {
    element("database").value = query.database;
  }
  location.hash = `query=${number}`;
  await follow(number);
}

async function begin() {
  await listOwn();
  await Promise.all([listTables(), listQueries()]);
  const [, number] = /^#query=(\d+)$/.exec(location.hash) ?? [];
  if (number !== undefined) {
    await show(Number(number));
  }
}

element("statement-form").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(() => submit(element("statement").value));
});
element("statement").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    attempt(() => submit(element("statement").value));
  }
});
element("explain").addEventListener("click", () => attempt(explain));
element("cancel").addEventListener("click", () => attempt(cancel));
element("earlier").addEventListener("click", () => attempt(() => showRows(Math.max(0, shown.offset - ROWS_OF_A_PAGE))));
element("later").addEventListener("click", () => attempt(() => showRows(shown.offset + ROWS_OF_A_PAGE)));
element("wanted").addEventListener("input", filterTables);
element("upload-form").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(upload);
});
attempt(begin);
