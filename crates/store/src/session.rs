//! The one Vortex session of the process: which encodings may be written, and where its work runs.

use std::sync::LazyLock;

use vortex::VortexSessionDefault;
use vortex::editions::{CORE_2026_08_3, EditionSessionExt};
use vortex::io::runtime::tokio::TokioRuntime;
use vortex::io::session::RuntimeSessionExt;
use vortex::session::VortexSession;

/// The session.
///
/// Files are written in the frozen edition `core 2026.8.3`, whatever edition a later Vortex prefers:
/// a frozen edition stays readable by every later release. Work that Vortex spawns (only when
/// writing) goes to the Tokio runtime of whoever asks, so any number of runtimes can use the session.
pub(crate) fn session() -> &'static VortexSession {
    static SESSION: LazyLock<VortexSession> = LazyLock::new(|| {
        let session =
            <VortexSession as VortexSessionDefault>::default().with_handle(TokioRuntime::current());
        if let Err(error) = session.enable_edition(CORE_2026_08_3) {
            // Only an edition that Vortex does not know is rejected; then its default stays, which is
            // frozen too, and the files say which encodings they use.
            tracing::error!(%error, "cannot pin the edition of the chunk files");
        }
        session
    });
    &SESSION
}
