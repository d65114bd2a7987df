//! Work that never ends, as on a disk that stopped answering: `HANG=sync` has every sync of the spool hang.
//!
//! Only with the cargo feature `crash-points`. Without it a call compiles to nothing and the variable means nothing.

/// Where a test can have the process hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hang {
    /// A record's file is about to be synced.
    Sync,
}

impl Hang {
    #[cfg(not(feature = "crash-points"))]
    #[inline(always)]
    pub fn pass(self) {}

    /// Does not return where the test chose this place. Blocks its thread.
    #[cfg(feature = "crash-points")]
    pub fn pass(self) {
        let name = match self {
            Self::Sync => "sync",
        };
        while std::env::var("HANG").is_ok_and(|chosen| chosen == name) {
            std::thread::park();
        }
    }
}
