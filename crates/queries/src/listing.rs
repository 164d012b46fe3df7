//! The list of queries, filtered, the newest first.

use engine::{QueryInfo, QueryState};
use sql::Warning;

use crate::query::Query;
use crate::{QueryError, QueryService, stored_warnings};

/// Which queries of the list are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryFilter {
    /// In one of these states; in any, if it is empty.
    pub states: Vec<QueryState>,
    /// Of this user alone.
    pub user: Option<String>,
    /// Older than the one of this number.
    pub before: Option<u64>,
}

impl QueryFilter {
    fn matches(&self, query: &Query) -> bool {
        if self.before.is_some_and(|before| query.id >= before) {
            return false;
        }
        let is_state = self.states.is_empty() || self.states.contains(&query.shown_state());
        is_state
            && query.update(|record| self.user.as_ref().is_none_or(|user| *user == record.user))
    }
}

impl QueryService {
    /// What is known of the queries that were submitted to run without a connection, and wait or run.
    pub fn submitted(&self) -> Vec<QueryInfo> {
        let places = self.places();
        let queries = self.registry().all().into_iter();
        let infos = queries.filter(|query| !query.state().is_final());
        let infos = infos.map(|query| query.info(places.get(&query.id).copied()));
        infos.filter(|query| query.is_async).collect()
    }

    /// The newest queries that a filter selects, the newest first; at most `limit`.
    pub fn list(&self, filter: &QueryFilter, limit: usize) -> Vec<QueryInfo> {
        let places = self.places();
        let queries = self.registry().newest(limit, |query| filter.matches(query));
        let queries = queries.iter();
        let info = |query: &std::sync::Arc<Query>| {
            let place = places.get(&query.id).copied();
            query.info(place)
        };
        queries.map(info).collect()
    }

    /// What is known of a query of any user.
    ///
    /// # Errors
    /// There is none of the number.
    pub fn find(&self, id: u64) -> Result<QueryInfo, QueryError> {
        let query = self
            .registry()
            .find(id)
            .ok_or_else(|| QueryError::no_query(id))?;
        Ok(query.info(self.place(id)))
    }

    /// The warnings of a submitted query that is completed; none of others. Whose query it is, is for the caller to have asked.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn warnings(&self, query: &QueryInfo) -> Result<Vec<Warning>, QueryError> {
        match &self.storage {
            Ok(storage) if query.warnings > 0 => {
                // One that was removed meanwhile has none any more.
                let epoch = (self.registry.find(query.id)).map_or(0, |it| it.record().epoch);
                let result = storage.files(query.id, epoch).result();
                Ok(stored_warnings::read(&result)?)
            }
            _ => Ok(vec![]),
        }
    }
}
