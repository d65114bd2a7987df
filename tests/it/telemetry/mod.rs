//! What a worker process sends to a real OTLP receiver and shows Prometheus, and what it does if no collector answers.

mod collector;
mod logs;
mod metrics;
mod names;
mod traces;
mod trouble;
