import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.SQLFeatureNotSupportedException;
import java.sql.Statement;
import java.time.LocalDateTime;
import java.util.Arrays;
import java.util.Comparator;

/**
 * Calls every method of DatabaseMetaData, and reads values at their limits, for test_more_clients.py. Each line is what was called and
 * what came of it, with tabs between them. Arguments: the address, and what takes the place of the database: "catalog" or "schema".
 */
public class Metadata {
    static String catalog;
    static String schema;

    public static void main(String[] arguments) throws Exception {
        boolean isSchema = arguments[1].equals("schema");
        catalog = isSchema ? null : "sky";
        schema = isSchema ? "sky" : null;
        try (Connection connection = DriverManager.getConnection(arguments[0])) {
            DatabaseMetaData about = connection.getMetaData();
            callAll(about);
            sayLists(about);
            sayLiterals(connection);
            sayParameters(connection);
            sayLargeDecimal(connection);
            saySelected(connection);
            sayCursor(connection);
            sayBatch(connection);
        }
    }

    static void say(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(line.isEmpty() ? "" : "\t").append(String.valueOf(word).replace("\t", " ").replace("\n", " "));
        }
        System.out.println(line);
    }

    // Every method, with the names of one table and of all.
    static void callAll(DatabaseMetaData about) throws Exception {
        Method[] methods = DatabaseMetaData.class.getMethods();
        Arrays.sort(methods, Comparator.comparing(Method::toString));
        for (Method method : methods) {
            if (method.getName().equals("unwrap") || method.getName().equals("isWrapperFor")) {
                continue;
            }
            for (String pattern : new String[] {"Object", "%"}) {
                call(about, method, pattern);
                if (method.getParameterCount() == 0) {
                    break;
                }
            }
        }
    }

    static void call(DatabaseMetaData about, Method method, String pattern) throws Exception {
        Class<?>[] types = method.getParameterTypes();
        Object[] values = new Object[types.length];
        int texts = 0;
        for (int at = 0; at < types.length; at++) {
            if (types[at] == String.class) {
                int place = texts++ % 3;
                // The cross reference has two tables; the others end with a column or another name.
                boolean isThird = texts > 3 && !method.getName().equals("getCrossReference");
                values[at] = isThird ? "%" : place == 0 ? catalog : place == 1 ? schema : pattern;
            } else if (types[at] == int.class) {
                boolean isOfResults = method.getName().equals("supportsResultSetConcurrency");
                values[at] = !isOfResults ? 1 : at == 0 ? ResultSet.TYPE_FORWARD_ONLY : ResultSet.CONCUR_READ_ONLY;
            } else if (types[at] == boolean.class) {
                values[at] = true;
            }
        }
        String name = method.getName() + "(" + types.length + "," + pattern + ")";
        try {
            Object result = method.invoke(about, values);
            say("called", name, result instanceof ResultSet rows ? readAll(rows) + " rows" : "a value");
        } catch (InvocationTargetException outer) {
            Throwable error = outer.getCause();
            boolean isClients = error instanceof SQLFeatureNotSupportedException;
            say("called", name, isClients ? "not supported" : "failed: " + error);
        } catch (SQLException error) {
            say("called", name, "failed while reading: " + error);
        }
    }

    static int readAll(ResultSet rows) throws SQLException {
        int count = 0;
        int width = rows.getMetaData().getColumnCount();
        try (rows) {
            while (rows.next()) {
                count++;
                for (int at = 1; at <= width; at++) {
                    rows.getObject(at);
                    rows.getString(at);
                }
            }
        }
        return count;
    }

    static void sayLists(DatabaseMetaData about) throws SQLException {
        String[] kinds = {"TABLE"};
        sayRows("tables", about.getTables(catalog, schema, "%", kinds), "TABLE_NAME", "TABLE_TYPE");
        sayRows("some tables", about.getTables(catalog, schema, "Ref%", kinds), "TABLE_NAME");
        sayRows("columns", about.getColumns(catalog, schema, "Extremes", "%"), "COLUMN_NAME", "ORDINAL_POSITION", "DATA_TYPE", "IS_NULLABLE",
                "DECIMAL_DIGITS", "NULLABLE");
        sayRows("key", about.getPrimaryKeys(catalog, schema, "Object"), "COLUMN_NAME", "KEY_SEQ", "PK_NAME");
        sayRows("index", about.getIndexInfo(catalog, schema, "Object", false, true), "COLUMN_NAME", "INDEX_NAME", "NON_UNIQUE");
        sayRows("best", about.getBestRowIdentifier(catalog, schema, "Object", DatabaseMetaData.bestRowSession, true), "COLUMN_NAME");
        sayRows("types", about.getTypeInfo(), "TYPE_NAME");
        sayRows("schemas", schema == null ? about.getCatalogs() : about.getSchemas(), schema == null ? "TABLE_CAT" : "TABLE_SCHEM");
        say("product", about.getDatabaseProductName(), about.getDatabaseMajorVersion(), about.getUserName());
    }

    static void sayRows(String what, ResultSet rows, String... columns) throws SQLException {
        try (rows) {
            while (rows.next()) {
                Object[] words = new Object[columns.length + 1];
                words[0] = what;
                for (int at = 0; at < columns.length; at++) {
                    words[at + 1] = rows.getString(columns[at]);
                }
                say(words);
            }
        }
    }

    static void sayLiterals(Connection connection) throws SQLException {
        String query = "SELECT 9223372036854775807 AS a, -9223372036854775808 AS b, 18446744073709551615 AS c, 0.1e0 AS d, "
                + "1.7976931348623157e308 AS e, TIMESTAMP '2010-06-15 01:02:03.000001' AS f, NULL AS g, '\u03a9mega \u2604 \ud83c\udf0c' AS h, TRUE AS i";
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(query)) {
            rows.next();
            sayLiteral("literals", rows);
        }
        try (PreparedStatement statement = connection.prepareStatement(query); ResultSet rows = statement.executeQuery()) {
            rows.next();
            sayLiteral("prepared literals", rows);
        }
    }

    static void sayLiteral(String how, ResultSet rows) throws SQLException {
        say(how, rows.getLong("a"), rows.getLong("b"), rows.getObject("c", BigInteger.class), rows.getDouble("d"), rows.getDouble("e"),
                rows.getObject("f", LocalDateTime.class), rows.getString("g"), rows.getString("h"), rows.getBoolean("i"));
    }

    static void sayParameters(Connection connection) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("SELECT ?, ?, ?, ? AS at, ?")) {
            say("parameters of a statement", statement.getParameterMetaData().getParameterCount());
            statement.setLong(1, Long.MAX_VALUE);
            statement.setBigDecimal(2, new BigDecimal("12345.5"));
            statement.setDouble(3, Double.MIN_VALUE);
            statement.setObject(4, LocalDateTime.of(2010, 6, 15, 1, 2, 3, 250_001_000));
            statement.setString(5, "\u2604 ' \\ \ud83c\udf0c");
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                say("parameters", rows.getLong(1), rows.getBigDecimal(2), rows.getDouble(3), rows.getObject("at", LocalDateTime.class), rows.getString(5));
            }
        }
    }

    // A driver has no other way to bind an integer beyond those with a sign.
    static void sayLargeDecimal(Connection connection) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("SELECT ?")) {
            statement.setBigDecimal(1, new BigDecimal("18446744073709551615"));
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                say("large decimal", rows.getBigDecimal(1));
            }
        }
    }

    static void saySelected(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery("SELECT e.id AS k FROM Extremes e LIMIT 1")) {
            ResultSetMetaData column = rows.getMetaData();
            say("label", column.getColumnLabel(1));
            say("origin", column.getColumnName(1), column.getTableName(1), column.getCatalogName(1), column.getSchemaName(1));
        }
    }

    // Rows as they come of a cursor, where a driver wants one.
    static void sayCursor(Connection connection) throws SQLException {
        String query = "SELECT a.objectId, REPEAT('x', 100) FROM Object a, Object b LIMIT ?";
        try (PreparedStatement statement = connection.prepareStatement(query, ResultSet.TYPE_FORWARD_ONLY, ResultSet.CONCUR_READ_ONLY)) {
            statement.setFetchSize(1000);
            statement.setInt(1, 100_000);
            long count = 0;
            long length = 0;
            try (ResultSet rows = statement.executeQuery()) {
                while (rows.next()) {
                    count++;
                    length += rows.getString(2).length();
                }
            }
            say("cursor", count, length);
        }
    }

    static void sayBatch(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.addBatch("SET @a = 1");
            statement.addBatch("SET @b = 2");
            say("batch", Arrays.toString(statement.executeBatch()));
        }
    }
}
