// What go-sql-driver/mysql sees of a server, for test_more_clients.py: a line of JSON for each theme. The argument is JSON too.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Parameter is a value to bind: its kind, and the value as text; no text is NULL.
type Parameter struct {
	Kind string
	Text *string
}

// Task is what the test says.
type Task struct {
	Port       int
	CA         string
	Values     string
	Literals   string
	Parameters []Parameter
	Compared   map[string]Parameter
	Mistakes   []string
	Long       string
	Stream     string
}

var task Task

const momentFormat = "2006-01-02 15:04:05.000000"

func open(options string) *sql.DB {
	database, err := sql.Open("mysql", fmt.Sprintf("tester:secret@tcp(127.0.0.1:%d)/sky?parseTime=true%s", task.Port, options))
	check(err)
	return database
}

// A failure ends its theme alone.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

func tell(theme string, look func() any) {
	line := map[string]any{"theme": theme}
	func() {
		defer func() {
			if failure := recover(); failure != nil {
				line["failed"] = fmt.Sprint(failure)
			}
		}()
		line["saw"] = look()
	}()
	written, err := json.Marshal(line)
	check(err)
	fmt.Println(string(written))
}

// Writes a value as text: NULL as nil, bytes of columns of bytes as hexadecimal digits.
func write(value any, kind string) any {
	switch value := value.(type) {
	case nil:
		return nil
	case int64, uint64:
		return fmt.Sprint(value)
	case float32:
		return strconv.FormatFloat(float64(value), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(value, 'g', -1, 64)
	case time.Time:
		return value.Format(momentFormat)
	case []byte:
		if kind == "BLOB" || kind == "VARBINARY" {
			return hex.EncodeToString(value)
		}
		return string(value)
	default:
		return fmt.Sprintf("%T", value)
	}
}

func readRows(rows *sql.Rows, err error) [][]any {
	check(err)
	defer rows.Close()
	return readResult(rows)
}

func readResult(rows *sql.Rows) [][]any {
	types, err := rows.ColumnTypes()
	check(err)
	read := [][]any{}
	for rows.Next() {
		values, places := make([]any, len(types)), make([]any, len(types))
		for at := range values {
			places[at] = &values[at]
		}
		check(rows.Scan(places...))
		for at := range values {
			values[at] = write(values[at], types[at].DatabaseTypeName())
		}
		read = append(read, values)
	}
	check(rows.Err())
	return read
}

func bind(parameter Parameter) any {
	if parameter.Text == nil {
		return nil
	}
	text := *parameter.Text
	switch parameter.Kind {
	case "integer":
		if number, err := strconv.ParseInt(text, 10, 64); err == nil {
			return number
		}
		number, err := strconv.ParseUint(text, 10, 64)
		check(err)
		return number
	case "double":
		number, err := strconv.ParseFloat(text, 64)
		check(err)
		return number
	case "boolean":
		return text == "1"
	case "bytes":
		content, err := hex.DecodeString(text)
		check(err)
		return content
	case "moment":
		moment, err := time.Parse(momentFormat, text)
		check(err)
		return moment
	default:
		return text
	}
}

func echo(database *sql.DB) any {
	marks, values := "", []any{}
	for _, parameter := range task.Parameters {
		marks += ", ?"
		values = append(values, bind(parameter))
	}
	statement, err := database.Prepare("SELECT " + marks[2:])
	check(err)
	defer statement.Close()
	var read [][]any
	for turn := 0; turn < 3; turn++ {
		read = append(read, readRows(statement.Query(values...))...)
	}
	return read
}

func compared(database *sql.DB) any {
	found := map[string]any{}
	for condition, parameter := range task.Compared {
		found[condition] = readRows(database.Query("SELECT id FROM Extremes WHERE "+condition+" ORDER BY id", bind(parameter)))
	}
	return found
}

func mistakes(database *sql.DB) any {
	var seen [][]any
	for _, statement := range task.Mistakes {
		_, err := database.Query(statement)
		var rejected *mysql.MySQLError
		if errors.As(err, &rejected) {
			seen = append(seen, []any{rejected.Number, string(rejected.SQLState[:])})
		} else {
			seen = append(seen, []any{fmt.Sprint(err)})
		}
	}
	return seen
}

func columns(database *sql.DB) any {
	rows, err := database.Query("SELECT * FROM Extremes LIMIT 0")
	check(err)
	defer rows.Close()
	types, err := rows.ColumnTypes()
	check(err)
	told := [][]any{}
	for _, column := range types {
		precision, scale, isDecimal := column.DecimalSize()
		nullable, isKnown := column.Nullable()
		told = append(told, []any{column.Name(), column.DatabaseTypeName(), column.ScanType().String(), nullable && isKnown, isDecimal, precision, scale})
	}
	return told
}

func stream(database *sql.DB) any {
	rows, err := database.Query(task.Stream)
	check(err)
	defer rows.Close()
	count, sum, length := 0, int64(0), 0
	for rows.Next() {
		var key int64
		var text string
		check(rows.Scan(&key, &text))
		count, sum, length = count+1, sum+key, length+len(text)
	}
	check(rows.Err())
	return []any{count, sum, length}
}

func several(database *sql.DB) any {
	rows, err := database.Query("SELECT 1 AS a; SELECT 'b', 2.5e0; SELECT id FROM Extremes WHERE id < 3 ORDER BY id")
	check(err)
	defer rows.Close()
	read := [][][]any{readResult(rows)}
	for rows.NextResultSet() {
		read = append(read, readResult(rows))
	}
	check(rows.Err())
	return read
}

// A statement that its context ends, and what the pool does then.
func timeout(database *sql.DB) any {
	limited, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	begun := time.Now()
	var sum float64
	err := database.QueryRowContext(limited, task.Long).Scan(&sum)
	isSoon := time.Since(begun) < 8*time.Second
	return []any{fmt.Sprint(err), isSoon, readRows(database.Query("SELECT 5"))}
}

func transaction(database *sql.DB) any {
	begun, err := database.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	check(err)
	read := readRows(begun.Query("SELECT COUNT(*) FROM Extremes"))
	check(begun.Commit())
	return read
}

func pool(database *sql.DB) any {
	database.SetMaxOpenConns(8)
	var group sync.WaitGroup
	sums := make([]int64, 64)
	failures := make([]error, len(sums))
	for at := range sums {
		group.Add(1)
		go func() {
			defer group.Done()
			failures[at] = database.QueryRow("SELECT ? + COUNT(*) FROM Extremes", at).Scan(&sums[at])
		}()
	}
	group.Wait()
	check(errors.Join(failures...))
	return sums
}

func encrypted() any {
	authority, err := os.ReadFile(task.CA)
	check(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	check(mysql.RegisterTLSConfig("tests", &tls.Config{RootCAs: trusted, ServerName: "localhost"}))
	database := open("&tls=tests")
	defer database.Close()
	var name, version string
	check(database.QueryRow("SHOW STATUS LIKE 'Ssl_version'").Scan(&name, &version))
	return version
}

func main() {
	check(json.Unmarshal([]byte(os.Args[1]), &task))
	database := open("&multiStatements=true")
	defer database.Close()
	inText := open("&interpolateParams=true")
	defer inText.Close()
	prepared := func(query string) [][]any {
		statement, err := database.Prepare(query)
		check(err)
		defer statement.Close()
		return readRows(statement.Query())
	}
	tell("values", func() any { return readRows(database.Query(task.Values)) })
	tell("prepared values", func() any { return prepared(task.Values) })
	tell("literals", func() any { return readRows(database.Query(task.Literals)) })
	tell("prepared literals", func() any { return prepared(task.Literals) })
	tell("parameters", func() any { return echo(database) })
	tell("compared", func() any { return compared(database) })
	tell("compared in text", func() any { return compared(inText) })
	tell("mistakes", func() any { return mistakes(database) })
	tell("columns", func() any { return columns(database) })
	tell("stream", func() any { return stream(database) })
	tell("several", func() any { return several(database) })
	tell("timeout", func() any { return timeout(database) })
	tell("transaction", func() any { return transaction(database) })
	tell("pool", func() any { return pool(database) })
	tell("tls", func() any { return encrypted() })
}
