//! The synchronisation primitives that this crate uses, in one place: the model-checking
//! test compiles the crate's files against another version of this module.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard,
};
pub(crate) use std::thread;
pub(crate) use std::thread_local;

/// Locks a mutex. A thread that panicked under a lock has already brought the process down
/// (the program aborts on panics); in tests the panic itself is the failure.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
