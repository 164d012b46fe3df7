//! Answering statements from the result cache, and keeping their results there.

use std::sync::Arc;

use futures::StreamExt;
use sql::ParsedStatement;

use super::{PreparedQuery, QueryResult, Session, is_query, with_schema};
use crate::result_cache::{Keeping, is_repeatable, keep};
use crate::{CachedRows, EngineError, QueryExecution, ResultKey, ScanEstimate, estimate};

impl Session {
    /// The statement as it was read, if its result may answer an equal one.
    pub(super) fn cacheable(
        &self,
        parsed: &ParsedStatement,
        prepared: &PreparedQuery,
    ) -> Option<String> {
        let may_be = self.results.is_some()
            && parsed.may_be_cached
            && is_query(&parsed.statement)
            && is_repeatable(&prepared.logical);
        may_be.then(|| parsed.statement.to_string())
    }

    /// Whether a result of a statement of this text may be there, so that it is to be planned with its values.
    pub(super) fn may_have_result(&self, text: &str) -> bool {
        self.results.as_ref().is_some_and(|it| it.knows(text))
    }

    /// By what the result of a statement that has not started is known; `None` if it may answer no other.
    pub fn result_key(&self, prepared: &PreparedQuery) -> Option<ResultKey> {
        let statement = prepared.cacheable.as_deref()?;
        let asked = (self.dialect, self.database.as_str(), statement);
        ResultKey::of(asked, &prepared.logical, &prepared.plan)
    }

    /// The result of an equal statement over the same parts, under the headings of this one. The statement's execution is told of whose.
    pub fn cached_result(&self, prepared: &PreparedQuery, key: &ResultKey) -> Option<QueryResult> {
        let (query, rows) = self.results.as_ref()?.find(key)?;
        if let Some(execution) = QueryExecution::current() {
            execution.note_cached_from(query);
        }
        let headed = Arc::clone(&prepared.schema);
        let batches = (rows.open)().map(move |batch| with_schema(batch?, &headed));
        Some(QueryResult {
            schema: Arc::clone(&prepared.schema),
            batches: batches.boxed(),
            plan: Arc::clone(&prepared.plan),
            warnings: prepared.warnings.clone(),
            // A result with such warnings is not kept.
            row_warnings: Arc::default(),
        })
    }

    /// Keeps a result that took so long.
    pub fn keep_result(&self, key: ResultKey, took: std::time::Duration, rows: CachedRows) {
        if let Some(results) = self.results.as_ref().filter(|it| took >= it.least()) {
            results.insert(key, rows);
        }
    }

    /// Answers a statement from the cache, or starts it once it is admitted.
    pub(super) async fn execute_or_reuse(
        &self,
        text: &str,
        prepared: PreparedQuery,
    ) -> Result<QueryResult, EngineError> {
        let took_long =
            |statement: &String| self.may_have_result(statement) || self.may_have_result(text);
        let mut key = match prepared.cacheable.as_ref().is_some_and(took_long) {
            true => self.result_key(&prepared),
            false => None,
        };
        if let Some(key) = &key
            && let Some(result) = self.cached_result(&prepared, key)
        {
            return Ok(result);
        }
        let estimate = estimate::admit(&self.archive, &prepared.plan).await?;
        if key.is_none() && prepared.cacheable.is_some() && self.is_long(estimate.as_ref()) {
            key = self.result_key(&prepared);
        }
        let is_cacheable = prepared.cacheable.is_some();
        let result = self.start(prepared)?;
        Ok(match (key, is_cacheable) {
            (Some(key), _) => self.kept(text, key, result),
            (None, true) => self.timed(text, result),
            (None, false) => result,
        })
    }

    /// Whether a statement is expected to take long enough for its result to be kept.
    fn is_long(&self, estimate: Option<&ScanEstimate>) -> bool {
        let Some(results) = &self.results else {
            return false;
        };
        let forecast = || Some(self.system.as_ref()?.forecast(estimate?).seconds);
        results.least().is_zero()
            || forecast().is_some_and(|seconds| seconds >= results.least().as_secs_f64())
    }

    /// The same result, whose text is noted if it takes long.
    pub(super) fn timed(&self, text: &str, mut result: QueryResult) -> QueryResult {
        if let Some(results) = &self.results {
            result.batches = keep(result.batches, Keeping::time(results, text));
        }
        result
    }

    /// The same result, which is kept if it takes long.
    fn kept(&self, text: &str, key: ResultKey, mut result: QueryResult) -> QueryResult {
        let number = QueryExecution::current().and_then(|it| it.number());
        if let (Some(results), Some(number)) = (&self.results, number) {
            let keeping = Keeping::time(results, text)
                .rows(key, number, &result.schema)
                .unless_warned(&result.row_warnings);
            result.batches = keep(result.batches, keeping);
        }
        result
    }
}
