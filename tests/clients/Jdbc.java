// What a Java program does with a database, by JDBC: run as `java -cp DRIVER.jar Jdbc.java WHAT URL`, it does one thing and writes what it
// saw, a line for each. Whether that is right is for its caller to say.

import java.math.BigDecimal;
import java.math.BigInteger;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.HexFormat;
import java.util.Timer;
import java.util.TimerTask;

public class Jdbc {
    static final String EXTREMES = "SELECT id, tiny, big, ubig, uint_, f, d, price, flag, day, at, txt, raw FROM Extremes";
    // All objects with all others: far more than anybody waits for.
    static final String LONG = "SELECT sum(scisql_angSep(a.ra_PS, b.decl_PS, c.ra_PS, a.decl_PS)) FROM Object a, Object b, Object c "
            + "WHERE scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS) < 179";

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = DriverManager.getConnection(arguments[1])) {
            switch (arguments[0]) {
                case "values" -> values(connection);
                case "parameters" -> parameters(connection);
                case "metadata" -> metadata(connection);
                case "session" -> session(connection);
                case "errors" -> errors(connection);
                case "several" -> several(connection);
                case "stream" -> stream(connection, Integer.parseInt(arguments[2]));
                case "leave" -> leave(connection, Integer.parseInt(arguments[2]));
                case "cancel" -> cancel(connection);
                case "timeout" -> timeout(connection);
                case "tls" -> tls(connection);
                default -> throw new IllegalArgumentException(arguments[0]);
            }
        }
    }

    static void say(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(line.isEmpty() ? "" : "\t").append(word instanceof byte[] bytes ? HexFormat.of().formatHex(bytes) : word);
        }
        System.out.println(line.toString().replace("\n", "\\n"));
    }

    // Every row of the table of extremes, by the getter of each column's type: from its text, then from its bytes.
    static void values(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(EXTREMES + " ORDER BY id")) {
            sayRows("text", rows);
        }
        try (PreparedStatement statement = connection.prepareStatement(EXTREMES + " WHERE id < ? ORDER BY id")) {
            statement.setInt(1, 1000);
            try (ResultSet rows = statement.executeQuery()) {
                sayRows("prepared", rows);
            }
        }
    }

    static void sayRows(String how, ResultSet rows) throws SQLException {
        while (rows.next()) {
            Object tiny = orNull(rows, rows.getByte("tiny"));
            Object big = orNull(rows, rows.getLong("big"));
            Object uint = orNull(rows, rows.getLong("uint_"));
            Object f = orNull(rows, Float.floatToIntBits(rows.getFloat("f")));
            Object d = orNull(rows, Double.doubleToLongBits(rows.getDouble("d")));
            Object flag = orNull(rows, rows.getBoolean("flag"));
            say(how, rows.getInt("id"), tiny, big, (BigInteger) rows.getObject("ubig"), uint, f, d, rows.getBigDecimal("price"), flag,
                    rows.getObject("day", LocalDate.class), rows.getObject("at", LocalDateTime.class), rows.getString("txt"), rows.getBytes("raw"));
        }
    }

    static Object orNull(ResultSet rows, Object value) throws SQLException {
        return rows.wasNull() ? null : value;
    }

    static void parameters(Connection connection) throws SQLException {
        byte[] bytes = {0, (byte) 0xff, '\'', '\\', '\n', 26, 'a'};
        try (PreparedStatement statement = connection.prepareStatement("SELECT ? AS a, ?, ?, ?, ?, ?, ?, ?, ?, ?, HEX(?), LENGTH(?)")) {
            for (int turn = 0; turn < 3; turn++) {
                statement.setInt(1, -7 - turn);
                statement.setLong(2, Long.MIN_VALUE);
                statement.setDouble(3, -0.1);
                statement.setBigDecimal(4, new BigDecimal("1.250"));
                statement.setString(5, "it's \\ \"quoted\" % ? ; -- \u2604 \ud83c\udf0c");
                statement.setObject(6, null);
                statement.setNull(7, Types.BIGINT);
                statement.setBoolean(8, true);
                statement.setDate(9, Date.valueOf("2010-06-15"));
                statement.setTimestamp(10, Timestamp.valueOf("2010-06-15 01:02:03.25"));
                statement.setBytes(11, bytes);
                statement.setBytes(12, bytes);
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    say(rows.getInt("a"), rows.getLong(2), rows.getDouble(3), rows.getBigDecimal(4), rows.getString(5), rows.getObject(6),
                            rows.getObject(7), rows.getBoolean(8), rows.getDate(9), rows.getTimestamp(10), rows.getString(11), rows.getInt(12));
                }
            }
        }
        for (String compared : new String[] {"ubig = ?", "at = ?", "day < ?", "raw = ?", "txt LIKE ?", "price = ?"}) {
            try (PreparedStatement statement = connection.prepareStatement("SELECT id FROM Extremes WHERE " + compared + " ORDER BY id")) {
                switch (compared.substring(0, 2)) {
                    case "ub" -> statement.setBigDecimal(1, new BigDecimal("18446744073709551615"));
                    case "at" -> statement.setObject(1, LocalDateTime.of(2010, 6, 15, 0, 0, 1));
                    case "da" -> statement.setObject(1, LocalDate.of(1970, 1, 2));
                    case "ra" -> statement.setBytes(1, new byte[] {0, (byte) 0xff});
                    case "tx" -> statement.setString(1, "%it's%");
                    default -> statement.setBigDecimal(1, new BigDecimal("0.5"));
                }
                try (ResultSet rows = statement.executeQuery()) {
                    StringBuilder found = new StringBuilder();
                    while (rows.next()) {
                        found.append(found.isEmpty() ? "" : ",").append(rows.getInt(1));
                    }
                    say(compared, found);
                }
            }
        }
    }

    // What a browser of databases asks before it shows anything.
    static void metadata(Connection connection) throws SQLException {
        DatabaseMetaData about = connection.getMetaData();
        say("product", about.getDatabaseProductName(), about.getDatabaseMajorVersion());
        sayColumn("catalog", about.getCatalogs(), "TABLE_CAT");
        sayColumn("kind", about.getTableTypes(), "TABLE_TYPE");
        try (ResultSet tables = about.getTables("sky", null, "%", new String[] {"TABLE", "VIEW", "SYSTEM VIEW", "SYSTEM TABLE"})) {
            while (tables.next()) {
                say("table", tables.getString("TABLE_CAT"), tables.getString("TABLE_NAME"), tables.getString("TABLE_TYPE"));
            }
        }
        try (ResultSet columns = about.getColumns("sky", null, "Extremes", "%")) {
            while (columns.next()) {
                say("column", columns.getInt("ORDINAL_POSITION"), columns.getString("COLUMN_NAME"), columns.getInt("DATA_TYPE"),
                        columns.getString("TYPE_NAME"), columns.getString("IS_NULLABLE"));
            }
        }
        sayColumn("key", about.getPrimaryKeys("sky", null, "Object"), "COLUMN_NAME");
        sayColumn("index", about.getIndexInfo("sky", null, "Object", false, true), "COLUMN_NAME");
        sayColumn("imported", about.getImportedKeys("sky", null, "Source"), "FKCOLUMN_NAME");
        sayColumn("exported", about.getExportedKeys("sky", null, "Object"), "FKCOLUMN_NAME");
        sayColumn("procedure", about.getProcedures("sky", null, "%"), "PROCEDURE_NAME");
        sayColumn("function", about.getFunctions("sky", null, "%"), "FUNCTION_NAME");
        sayColumn("best", about.getBestRowIdentifier("sky", null, "Object", DatabaseMetaData.bestRowSession, true), "COLUMN_NAME");
        say("types", about.getTypeInfo().next(), about.getSQLKeywords().isEmpty(), about.getIdentifierQuoteString());
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(EXTREMES + " LIMIT 1")) {
            ResultSetMetaData columns = rows.getMetaData();
            for (int at = 1; at <= columns.getColumnCount(); at++) {
                say("selected", columns.getColumnLabel(at), columns.getColumnType(at), columns.getColumnClassName(at), columns.isSigned(at),
                        columns.getPrecision(at) >= 0, columns.getScale(at));
            }
        }
    }

    static void sayColumn(String what, ResultSet rows, String column) throws SQLException {
        try (rows) {
            while (rows.next()) {
                say(what, rows.getString(column));
            }
        }
    }

    static void session(Connection connection) throws SQLException {
        say("valid", connection.isValid(5), connection.getAutoCommit(), connection.isReadOnly(), connection.getCatalog());
        connection.setAutoCommit(false);
        say("autocommit", connection.getAutoCommit(), one(connection, "SELECT @@autocommit"));
        one(connection, "SELECT 1");
        connection.commit();
        connection.rollback();
        connection.setAutoCommit(true);
        say("autocommit", connection.getAutoCommit(), one(connection, "SELECT @@autocommit"));
        connection.setReadOnly(true);
        connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
        say("isolation", connection.getTransactionIsolation() == Connection.TRANSACTION_READ_COMMITTED);
        connection.setCatalog("information_schema");
        say("catalog", connection.getCatalog(), one(connection, "SELECT DATABASE()"));
        connection.setCatalog("sky");
        say("catalog", connection.getCatalog(), one(connection, "SELECT DATABASE()"));
        try (Statement statement = connection.createStatement()) {
            statement.execute("USE information_schema");
            say("use", one(connection, "SELECT DATABASE()"));
            statement.execute("USE sky");
            statement.setMaxRows(3);
            say("most", count(statement.executeQuery("SELECT objectId FROM Object")));
        }
        say("user", one(connection, "SELECT USER()"));
    }

    static void errors(Connection connection) throws SQLException {
        for (String wrong : new String[] {"SELEC 1", "SELECT nosuch FROM Object", "SELECT 1 FROM nosuch", "DROP TABLE Object"}) {
            try (Statement statement = connection.createStatement()) {
                statement.execute(wrong);
                say("no error", wrong);
            } catch (SQLException error) {
                say(error.getErrorCode(), error.getSQLState());
            }
        }
        try (PreparedStatement statement = connection.prepareStatement("SELECT nosuch FROM Object WHERE objectId = ?")) {
            statement.setLong(1, 1);
            statement.executeQuery();
            say("no error");
        } catch (SQLException error) {
            say(error.getErrorCode(), error.getSQLState());
        }
        say("still", one(connection, "SELECT 1"));
    }

    static void several(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            boolean rows = statement.execute("SELECT 1; SET @@sql_notes = 0; SELECT 2, 3");
            while (rows || statement.getUpdateCount() != -1) {
                say(rows ? count(statement.getResultSet()) : "done");
                rows = statement.getMoreResults();
            }
        }
    }

    // More rows than there is memory for.
    static void stream(Connection connection, int fetchSize) throws SQLException {
        try (Statement statement = connection.createStatement(ResultSet.TYPE_FORWARD_ONLY, ResultSet.CONCUR_READ_ONLY)) {
            statement.setFetchSize(fetchSize);
            long bytes = 0;
            try (ResultSet rows = statement.executeQuery("SELECT a.objectId, REPEAT('x', 1000) FROM Object a, Object b LIMIT 200000")) {
                while (rows.next()) {
                    bytes += rows.getString(2).length();
                }
            }
            say("streamed", bytes, Runtime.getRuntime().maxMemory() < bytes);
        }
        say("then", one(connection, "SELECT 5"));
    }

    // Some rows of an answer, and no more of them.
    static void leave(Connection connection, int fetchSize) throws SQLException {
        try (Statement statement = connection.createStatement(ResultSet.TYPE_FORWARD_ONLY, ResultSet.CONCUR_READ_ONLY)) {
            statement.setFetchSize(fetchSize);
            ResultSet rows = statement.executeQuery("SELECT a.objectId, REPEAT('x', 1000) FROM Object a, Object b, Object c");
            for (int turn = 0; turn < 100; turn++) {
                rows.next();
            }
            say("read", rows.getString(2).length());
            statement.cancel();
            try {
                rows.close();
            } catch (SQLException error) {
                say("closed", error.getErrorCode());
            }
        }
        say("then", one(connection, "SELECT 5"));
    }

    static void cancel(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            new Timer(true).schedule(new TimerTask() {
                @Override
                public void run() {
                    try {
                        statement.cancel();
                    } catch (SQLException error) {
                        say("not cancelled", error);
                    }
                }
            }, 1000);
            waitFor(statement);
        }
        say("then", one(connection, "SELECT 5"));
    }

    static void timeout(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            waitFor(statement);
        }
        say("then", one(connection, "SELECT 5"));
    }

    static void waitFor(Statement statement) {
        long begun = System.nanoTime();
        try {
            statement.executeQuery(LONG);
            say("answered");
        } catch (SQLException error) {
            double seconds = (System.nanoTime() - begun) / 1e9;
            say("stopped", seconds > 0.8 && seconds < 8, error.getClass().getSimpleName());
        }
    }

    static void tls(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery("SHOW STATUS LIKE 'Ssl_version'")) {
            rows.next();
            say(rows.getString(2));
        }
        say(one(connection, "SELECT '" + "y".repeat(3_000_000) + "'").length());
    }

    static String one(Connection connection, String query) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(query)) {
            return rows.next() ? rows.getString(1) : null;
        }
    }

    static int count(ResultSet rows) throws SQLException {
        int count = 0;
        try (rows) {
            while (rows.next()) {
                count++;
            }
        }
        return count;
    }
}
