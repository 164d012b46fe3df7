//! The reading phase: threads take parts of the files, decode them, and hand the rows to the placement.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::IngestError;
use crate::format::{Part, ReadContext, Source, TableFile, WINDOW};
use crate::place::{PlaceRows, Placement};

/// Small files are opened ahead, but not so many of them.
const FILES_AHEAD: usize = 64;

/// The files of a load while they are read.
struct OpenSources<'a> {
    files: &'a [Box<dyn TableFile>],
    context: &'a Arc<ReadContext>,
    next_file: AtomicUsize,
    /// The first file whose beginning was not requested.
    next_ahead: Mutex<usize>,
    open: Mutex<Vec<Arc<SharedSource>>>,
    /// Set when a thread failed, so that the others stop.
    stop: AtomicBool,
    /// Set when a thread has stopped before the rows ended.
    is_cut: AtomicBool,
}

/// A file that any thread may take the next part of.
struct SharedSource {
    source: Mutex<Option<Box<dyn Source>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads every file to its end.
pub(crate) fn read_all(
    files: &[Box<dyn TableFile>],
    context: &Arc<ReadContext>,
    placement: &dyn Placement,
    threads: usize,
) -> Result<(), IngestError> {
    let sources = OpenSources {
        files,
        context,
        next_file: AtomicUsize::new(0),
        next_ahead: Mutex::new(0),
        open: Mutex::default(),
        stop: AtomicBool::new(false),
        is_cut: AtomicBool::new(false),
    };
    let outcomes = std::thread::scope(|scope| {
        let work = || {
            let outcome = sources.work(placement);
            if outcome.is_err() {
                sources.stop.store(true, Relaxed);
            }
            outcome
        };
        let handles: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, _>| {
            handle.join().unwrap_or(Err(IngestError::Internal))
        };
        handles.into_iter().map(join).collect::<Vec<_>>()
    });
    let outcome = outcomes.into_iter().collect::<Result<(), _>>();
    match outcome {
        // Others may have rejected rows since.
        Ok(()) | Err(IngestError::TooManyRejected { .. }) => {
            let is_cut = sources.is_cut.load(Relaxed);
            context.rejected_rows.check_so_far(is_cut)
        }
        Err(error) => Err(error),
    }
}

impl OpenSources<'_> {
    fn work(&self, placement: &dyn Placement) -> Result<(), IngestError> {
        let mut worker = placement.worker();
        let mut current = None;
        while let Some(part) = self.next_part(&mut current)? {
            self.read_part(part, worker.as_mut(), &mut current)?;
            if self.stop.load(Relaxed) {
                // Another thread failed, and its error is the one that is told.
                self.is_cut.store(true, Relaxed);
                return Ok(());
            }
        }
        worker.finish()
    }

    fn read_part(
        &self,
        mut part: Box<dyn Part>,
        worker: &mut dyn PlaceRows,
        current: &mut Option<Arc<SharedSource>>,
    ) -> Result<(), IngestError> {
        while let Some(batch) = part.next_batch()? {
            self.context.progress.read(batch.rows.len() as u64, 0);
            if !batch.rows.is_empty() {
                worker.place(self.context.text_keys.compute(batch)?)?;
            }
            if let Err(error) = self.context.rejected_rows.check() {
                let is_end = matches!(part.next_batch(), Ok(None))
                    && matches!(self.next_part(current), Ok(None));
                if !is_end {
                    self.is_cut.store(true, Relaxed);
                }
                return Err(error);
            }
            if self.context.progress.is_cancelled() {
                return Err(IngestError::Cancelled);
            }
            if self.stop.load(Relaxed) {
                break;
            }
        }
        Ok(())
    }

    /// The next part of the thread's current file, or of another one when that is at its end.
    fn next_part(
        &self,
        current: &mut Option<Arc<SharedSource>>,
    ) -> Result<Option<Box<dyn Part>>, IngestError> {
        loop {
            let shared = match current.take() {
                Some(shared) => shared,
                None => match self.next_source()? {
                    Some(shared) => shared,
                    None => return Ok(None),
                },
            };
            let mut source = lock(&shared.source);
            let part = match source.as_mut() {
                Some(source) => source.next_part()?,
                None => None,
            };
            match part {
                Some(part) => {
                    drop(source);
                    *current = Some(shared);
                    return Ok(Some(part));
                }
                None => {
                    *source = None;
                    lock(&self.open).retain(|open| !Arc::ptr_eq(open, &shared));
                }
            }
        }
    }

    /// A file that nobody has opened yet, or else one that another thread is reading.
    fn next_source(&self) -> Result<Option<Arc<SharedSource>>, IngestError> {
        let number = self.next_file.fetch_add(1, Relaxed);
        let Some(file) = self.files.get(number) else {
            return Ok(lock(&self.open).first().cloned());
        };
        let source = file.open(number, self.context)?;
        self.read_ahead(number + 1);
        let shared = Arc::new(SharedSource {
            source: Mutex::new(Some(source)),
        });
        lock(&self.open).push(shared.clone());
        Ok(Some(shared))
    }

    /// Asks for the beginnings of the files that are read next.
    fn read_ahead(&self, number: usize) {
        let mut next = lock(&self.next_ahead);
        let mut window = WINDOW;
        for (number, file) in self.files.iter().enumerate().skip(number).take(FILES_AHEAD) {
            if number >= *next {
                file.read_ahead(self.context);
                *next = number + 1;
            }
            window = window.saturating_sub(file.work());
            if window == 0 {
                break;
            }
        }
    }
}
