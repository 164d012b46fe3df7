// What node's mysql2 sees of a server, for test_more_clients.py: a line of JSON for each theme. The argument is JSON too.
"use strict";

const fs = require("fs");
const mysql = require("mysql2");
const promises = require("mysql2/promise");

const task = JSON.parse(process.argv[2]);
const BINARY = 63;
const TEXT_KINDS = [mysql.Types.BLOB, mysql.Types.VAR_STRING, mysql.Types.STRING];

function address(options) {
  return {
    host: "127.0.0.1",
    port: task.port,
    user: "tester",
    password: "secret",
    database: "sky",
    supportBigNumbers: true,
    rowsAsArray: true,
    timezone: "Z",
    ...options,
  };
}

// A failure ends its theme alone.
async function tell(theme, look) {
  const line = { theme };
  try {
    line.saw = await look();
  } catch (error) {
    line.failed = String(error.stack || error);
  }
  console.log(JSON.stringify(line));
}

// Writes a value as text: NULL as null, bytes as hexadecimal digits.
function write(value) {
  if (value === null) return null;
  if (Buffer.isBuffer(value)) return value.toString("hex");
  if (value instanceof Date) return value.toISOString();
  return String(value);
}

const written = (rows) => rows.map((row) => row.map(write));

// Times as texts, with all their digits.
const asText = { dateStrings: true };

async function using(options, use) {
  const connection = await promises.createConnection(address(options));
  try {
    return await use(connection);
  } finally {
    await connection.end();
  }
}

const text = (query, options = asText) => using(options, async (connection) => written((await connection.query(query))[0]));
const prepared = (query, options = asText) => using(options, async (connection) => written((await connection.execute(query))[0]));

function bind({ kind, text: value }) {
  if (value === null) return null;
  switch (kind) {
    // mysql2 binds numbers as doubles, which hold integers of 53 bits.
    case "integer":
      return Number.isSafeInteger(Number(value)) ? Number(value) : value;
    case "double":
      return Number(value);
    case "boolean":
      return value === "1";
    case "bytes":
      return Buffer.from(value, "hex");
    default:
      return value;
  }
}

async function echo() {
  const query = `SELECT ${task.parameters.map(() => "?").join(", ")}`;
  return using(asText, async (connection) => {
    const seen = [];
    for (let turn = 0; turn < 3; turn++) seen.push(...written((await connection.execute(query, task.parameters.map(bind)))[0]));
    return seen;
  });
}

async function compared(how) {
  return using(asText, async (connection) => {
    const found = {};
    for (const [condition, parameter] of Object.entries(task.compared)) {
      const query = `SELECT id FROM Extremes WHERE ${condition} ORDER BY id`;
      found[condition] = written((await connection[how](query, [bind(parameter)]))[0]);
    }
    return found;
  });
}

async function mistakes(how) {
  return using({}, async (connection) => {
    const seen = [];
    for (const statement of task.mistakes) {
      try {
        await connection[how](statement);
        seen.push(["no error"]);
      } catch (error) {
        seen.push([error.errno, error.sqlState, error.code]);
      }
    }
    return seen;
  });
}

async function columns() {
  return using({}, async (connection) => {
    const [, fields] = await connection.query("SELECT * FROM Extremes LIMIT 1");
    return fields.map((field) => [
      field.name,
      mysql.Types[field.columnType],
      (field.flags & 32) !== 0,
      field.decimals,
      TEXT_KINDS.includes(field.columnType) && field.characterSet === BINARY,
      field.orgName,
      field.table,
      field.orgTable,
      field.schema,
    ]);
  });
}

// Rows as they come, of a connection of the interface with callbacks.
function stream() {
  return new Promise((resolve, reject) => {
    const connection = mysql.createConnection(address({ rowsAsArray: true }));
    let [count, sum, length] = [0, 0n, 0];
    connection
      .query(task.stream)
      .stream({ highWaterMark: 100 })
      .on("data", ([key, value]) => {
        count += 1;
        sum += BigInt(key);
        length += value.length;
      })
      .on("error", reject)
      .on("end", () => {
        connection.end();
        resolve([count, Number(sum), length]);
      });
  });
}

async function several() {
  return using({ multipleStatements: true }, async (connection) => {
    const query = "SELECT 1 AS a; SELECT 'b', 2.5e0; SELECT id FROM Extremes WHERE id < 3 ORDER BY id";
    return (await connection.query(query))[0].map(written);
  });
}

// Columns of two tables with one name.
async function nested() {
  const query = "SELECT a.id, b.id, b.day FROM Extremes a JOIN Extremes AS b ON a.id = b.id + 1 WHERE a.id = 4";
  return using({ rowsAsArray: false, nestTables: true, dateStrings: true }, async (connection) => (await connection.query(query))[0]);
}

async function named() {
  return using({ namedPlaceholders: true }, async (connection) =>
    written((await connection.execute("SELECT :a, id FROM Extremes WHERE id = :id", { a: "x", id: 3 }))[0]),
  );
}

async function timeout() {
  return using({}, async (connection) => {
    try {
      await connection.query({ sql: task.long, timeout: 1000 });
      return "an answer";
    } catch (error) {
      return error.code;
    } finally {
      connection.destroy();
    }
  });
}

async function session() {
  return using({}, async (connection) => {
    await connection.ping();
    await connection.beginTransaction();
    await connection.commit();
    await connection.changeUser({ user: "other", password: "secret", database: "information_schema" });
    return written((await connection.query("SELECT USER(), DATABASE()"))[0]);
  });
}

async function pool() {
  const many = promises.createPool(address({ connectionLimit: 8 }));
  try {
    const sums = [...Array(64).keys()].map((at) => many.execute("SELECT ? + COUNT(*) FROM Extremes", [at]));
    return (await Promise.all(sums)).map(([rows]) => Number(rows[0][0]));
  } finally {
    await many.end();
  }
}

async function encrypted() {
  const ssl = { ca: fs.readFileSync(task.ca) };
  return using({ ssl, host: "localhost" }, async (connection) => (await connection.query("SHOW STATUS LIKE 'Ssl_version'"))[0][0][1]);
}

async function main() {
  await tell("values", () => text(task.values));
  await tell("prepared values", () => prepared(task.values));
  await tell("literals", () => text(task.literals));
  await tell("prepared literals", () => prepared(task.literals));
  await tell("dates", () => text("SELECT TIMESTAMP '2010-06-15 01:02:03.250', DATE '1970-01-02'", {}));
  await tell("prepared dates", () => prepared("SELECT TIMESTAMP '2010-06-15 01:02:03.250', DATE '1970-01-02'", {}));
  await tell("parameters", echo);
  await tell("compared", () => compared("execute"));
  await tell("compared in text", () => compared("query"));
  await tell("mistakes", () => mistakes("query"));
  await tell("prepared mistakes", () => mistakes("execute"));
  await tell("columns", columns);
  await tell("stream", stream);
  await tell("several", several);
  await tell("nested", nested);
  await tell("named", named);
  await tell("timeout", timeout);
  await tell("session", session);
  await tell("pool", pool);
  await tell("tls", encrypted);
}

main();
