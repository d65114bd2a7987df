//! G1 to G4, C8, I10: limits and circuits over several processes, and without Redis. Each test has a Redis of its own,
//! which it may kill.

mod alone;
mod breaker;
mod ground;
mod long_form;
mod pause;
mod shared;
mod topology;
mod waiting;
