//! One member of a cluster that lives in this process.

use std::future::Future;

use tokio::runtime::{Builder, Runtime};

use crate::ClusterError;

/// A runtime of its own for one member, so that all it has started ends with it, as the tasks of a process do.
pub(crate) struct Node {
    name: &'static str,
    /// Taken when it ends.
    runtime: Option<Runtime>,
}

impl Node {
    /// Starts a member with this many threads for its messages.
    pub(crate) fn start(name: &'static str, threads: usize) -> Result<Self, ClusterError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(name)
            .enable_all()
            .build()
            .map_err(|error| ClusterError::start(name, error))?;
        Ok(Self {
            name,
            runtime: Some(runtime),
        })
    }

    /// Does some work in the member and waits for its result.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ClusterError>> + Send + 'static,
    ) -> Result<T, ClusterError> {
        let Some(runtime) = &self.runtime else {
            return Err(ClusterError::start(self.name, "it has been stopped"));
        };
        runtime
            .spawn(work)
            .await
            .map_err(|error| ClusterError::start(self.name, error))?
    }

    /// Does some work in the member without waiting for it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(work);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waiting is not allowed here: the owner may be a task itself.
            runtime.shutdown_background();
        }
    }
}
