# What RMySQL sees of a server, for test_more_clients.py: lines of words with tabs between them. The argument is the port.
suppressPackageStartupMessages(library(DBI))
options(warn = -1)
port <- as.integer(commandArgs(trailingOnly = TRUE)[1])
connection <- dbConnect(RMySQL::MySQL(), host = "127.0.0.1", port = port, user = "tester", password = "secret", dbname = "sky")

say <- function(...) cat(paste(gsub("\n", "\\n", c(...), fixed = TRUE), collapse = "\t"), "\n", sep = "")
write <- function(value) if (is.na(value)) "NULL" else if (is.numeric(value)) sprintf("%.17g", value) else enc2utf8(value)
invisible(dbGetQuery(connection, "SET NAMES utf8mb4"))

say("tables", dbListTables(connection))
say("fields", dbListFields(connection, "Extremes"))
say("exists", dbExistsTable(connection, "Object"), dbExistsTable(connection, "nosuch"))
query <- "SELECT id, tiny, uint_, d, price, flag, day, at FROM Extremes ORDER BY id"
rows <- dbGetQuery(connection, query)
for (at in seq_len(nrow(rows))) do.call(say, c("row", lapply(rows[at, ], write)))
text <- dbGetQuery(connection, "SELECT 'Ωmega ☄ 星', HEX('é'), TIMESTAMP '2010-06-15 01:02:03.000001', NULL")
Encoding(text[[1]]) <- "UTF-8"
do.call(say, c("text", lapply(text[1, ], write)))
failed <- tryCatch(dbGetQuery(connection, "SELECT nosuch FROM Extremes"), error = function(error) dbGetException(connection))
say("mistake", failed$errorNum)
result <- dbSendQuery(connection, "SELECT a.objectId, REPEAT('x', 100) FROM Object a, Object b LIMIT 100000")
count <- 0
length <- 0
while (!dbHasCompleted(result)) {
    rows <- dbFetch(result, n = 7000)
    count <- count + nrow(rows)
    length <- length + sum(nchar(rows[[2]]))
}
invisible(dbClearResult(result))
say("stream", write(count), write(length))
say("whole", nrow(dbReadTable(connection, "Filter")))
say("quoted", dbGetQuery(connection, paste("SELECT", dbQuoteString(connection, "it's \\ ;")))[[1]])
invisible(dbDisconnect(connection))
