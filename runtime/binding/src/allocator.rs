//! The allocator of the kernel, whose many small allocations it is made for.

use std::ffi::c_long;

use libmimalloc_sys::{mi_option_get, mi_option_set, mi_option_t};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay`: after how many milliseconds freed memory is given back to the system.
const PURGE_DELAY: mi_option_t = 15;
/// What it is by default, by which we know that the option is the one we mean and that nobody has set it
/// (`MIMALLOC_PURGE_DELAY`).
const DEFAULT: c_long = 1_000;

/// Has freed memory kept for ten seconds. Compiles come seconds apart and need tens of megabytes for a moment; getting them
/// zeroed by the system anew each time is a fifth of the time to compile.
pub fn keep_memory() {
    // SAFETY: both functions read and write an entry of a static table of integers, and check the index. They are not to be
    // called from several threads at once: this runs once, while the module is imported, before anything else is called.
    unsafe {
        if mi_option_get(PURGE_DELAY) == DEFAULT {
            mi_option_set(PURGE_DELAY, 10 * DEFAULT);
        }
    }
}
