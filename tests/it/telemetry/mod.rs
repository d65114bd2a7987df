//! What a worker process tells a real OTLP receiver and Prometheus, and what it does when nobody listens.

mod collector;
mod logs;
mod metrics;
mod names;
mod traces;
mod trouble;
