//! Threads for what nobody waits for yet.

use std::sync::OnceLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Run `work` behind everything that somebody waits for.
///
/// On threads of the usual priority it would take the processor from the thread that has just asked for it, which is putting
/// a request's grammar together: a thread that wakes goes before one that runs.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) {
    static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let made = || {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get().div_ceil(2));
        let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("gramary-ahead-{i}"));
        pool.start_handler(|_| lower_priority()).build().ok()
    };
    // Without threads everything is built when it is needed.
    if let Some(pool) = POOL.get_or_init(made) {
        pool.spawn(work);
    }
}

/// Of this thread alone.
#[cfg(target_os = "linux")]
fn lower_priority() {
    const NICE: libc::c_int = 10;
    // SAFETY: the call takes three numbers; on Linux it is about the calling thread. It may fail, and the priority stays.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}
