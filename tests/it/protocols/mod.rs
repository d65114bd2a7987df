//! Protocols of others: CloudEvents 1.0, A2A 1.0 and platforms' signatures, with their SDKs where scripts/install-requirements.sh has put them.

mod a2a_agent;
mod a2a_answers;
mod a2a_calls;
mod a2a_clients;
mod a2a_house;
mod a2a_push;
mod a2a_refusals;
mod a2a_stalls;
mod a2a_strangers;
mod cloudevents_in;
mod cloudevents_out;
mod sdk;
mod signatures;
