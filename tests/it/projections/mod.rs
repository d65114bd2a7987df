//! F4: read models that a function in SQL keeps, in the transaction that settles its events.

mod applied;
mod bed;
mod example;
mod failing;
mod fed;
mod hostile;
mod midway;
mod panicking;
mod rebuilt;
