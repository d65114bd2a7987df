//! Work that never ends, as on a disk that stopped answering: `HANG=sync` has every sync of the spool hang, `HANG=claim`
//! every claim loop that holds a lane.
//!
//! Only with the cargo feature `crash-points`. Without it a call compiles to nothing and the variable means nothing.

/// Where a test can have the process hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hang {
    /// A record's file is about to be synced.
    Sync,
    /// A claim loop that holds lanes is about to turn.
    Claim,
}

impl Hang {
    #[cfg(not(feature = "crash-points"))]
    #[inline(always)]
    pub fn pass(self) {}

    /// Does not return where the test chose this place. Blocks its thread.
    #[cfg(feature = "crash-points")]
    pub fn pass(self) {
        while self.is_chosen() {
            std::thread::park();
        }
    }

    /// Does not complete where the test chose this place. Blocks its task alone.
    #[cfg(feature = "crash-points")]
    pub async fn stand(self) {
        if self.is_chosen() {
            std::future::pending::<()>().await;
        }
    }

    #[cfg(feature = "crash-points")]
    fn is_chosen(self) -> bool {
        let name = match self {
            Self::Sync => "sync",
            Self::Claim => "claim",
        };
        std::env::var("HANG").is_ok_and(|chosen| chosen == name)
    }
}
