//! Every state once, and I3 and I13 as liveness: from every state that can be reached, what is committed can still be
//! delivered, by steps that the system takes by itself.
//!
//! In a finite system that is the same as saying that it is delivered in the end, if no step that is
//! possible again and again is passed over for ever. The checker's own "eventually" would not do: it
//! takes a cycle for an end. So the graph of all states is kept here and walked backwards.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use stateright::Model;

use crate::property;
use crate::scenario::Scenario;
use crate::state::{LANES, Stage, State};
use crate::step::Step;

/// What must be reachable, and by which steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Goal {
    /// The lane's events are delivered: without the other lane's deliveries or backoff (I3), without
    /// a producer, without the lock time-out.
    Delivered(usize),
    /// Where no producer is in the middle of something: all is delivered, and all is let go.
    Quiet,
}

impl Goal {
    pub const ALL: [Self; 3] = [Self::Delivered(0), Self::Delivered(1), Self::Quiet];

    fn allows(self, step: Step) -> bool {
        match self {
            Self::Delivered(lane) => {
                let other = (0..LANES).any(|of| of != lane && step.is_of(of));
                step.is_own() && !other && !step.is_time_out()
            }
            Self::Quiet => step.is_own(),
        }
    }

    fn is_met(self, scenario: &Scenario, state: &State) -> bool {
        match self {
            Self::Delivered(lane) => property::is_delivered(scenario, state, lane),
            Self::Quiet => {
                let done = state.producers.iter().all(|producer| {
                    let stage = producer.stage;
                    matches!(stage, Stage::Begun | Stage::Committed | Stage::RolledBack)
                });
                !done || property::is_quiet(scenario, state)
            }
        }
    }
}

/// A state from which a goal is out of reach, and the shortest way there.
#[derive(Debug)]
pub struct Stuck {
    pub goal: Goal,
    pub steps: Vec<Step>,
    pub state: Box<State>,
}

/// A property that some state breaks, and the shortest way there.
#[derive(Debug)]
pub struct Broken {
    pub property: &'static str,
    pub steps: Vec<Step>,
}

/// How many states there were, what they break, and where the system is stuck.
#[derive(Debug)]
pub struct Outcome {
    pub states: usize,
    pub broken: Vec<Broken>,
    pub stuck: Vec<Stuck>,
}

struct Graph {
    hasher: ahash::RandomState,
    numbers: HashMap<u64, u32>,
    /// Of each state, the one from which it was found first.
    parents: Vec<u32>,
    /// From, to, and the goals that allow the step, as bits.
    edges: Vec<(u32, u32, u8)>,
    /// Goals that are met, as bits.
    met: Vec<u8>,
    /// The first state that breaks each property.
    broken: Vec<(&'static str, u32)>,
}

/// Explores everything and says where a goal is out of reach.
pub fn check(scenario: &Scenario) -> Outcome {
    let graph = explore(scenario);
    let stuck = Goal::ALL
        .iter()
        .enumerate()
        .filter_map(|(index, goal)| {
            let reaches = reaching(&graph, 1 << index);
            // The first one found is the one with the shortest way.
            let state = reaches.iter().position(|reaches| !reaches)?;
            let (steps, state) = way(scenario, &graph, state);
            Some(Stuck {
                goal: *goal,
                steps,
                state: Box::new(state),
            })
        })
        .collect();
    let broken = graph.broken.iter().map(|(property, state)| Broken {
        property,
        steps: way(scenario, &graph, *state as usize).0,
    });
    Outcome {
        states: graph.parents.len(),
        broken: broken.collect(),
        stuck,
    }
}

fn explore(scenario: &Scenario) -> Graph {
    let mut graph = Graph {
        // Fixed: a run finds the same ways every time.
        hasher: ahash::RandomState::with_seeds(1, 2, 3, 4),
        numbers: HashMap::default(),
        parents: Vec::new(),
        edges: Vec::new(),
        met: Vec::new(),
        broken: Vec::new(),
    };
    let properties = scenario.properties();
    let mut frontier = Vec::new();
    for state in scenario.init_states() {
        number(scenario, &mut graph, &state, 0);
        frontier.push(state);
    }
    let mut first = 0;
    let mut steps = Vec::new();
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for (from, state) in (first..).zip(&frontier) {
            steps.clear();
            scenario.actions(state, &mut steps);
            for step in steps.drain(..) {
                let Some(after) = scenario.next_state(state, step) else {
                    continue;
                };
                let (to, is_new) = number(scenario, &mut graph, &after, from);
                let allowed = goals(|goal| goal.allows(step));
                if allowed != 0 && to != from {
                    graph.edges.push((from, to, allowed));
                }
                if is_new {
                    for property in &properties {
                        let mut known = graph.broken.iter().map(|(name, _)| *name);
                        if !(property.condition)(scenario, &after)
                            && !known.any(|name| name == property.name)
                        {
                            graph.broken.push((property.name, to));
                        }
                    }
                    next.push(after);
                }
            }
        }
        first += u32::try_from(frontier.len()).expect("fewer states than 2^32");
        frontier = next;
    }
    graph
}

fn goals(holds: impl Fn(Goal) -> bool) -> u8 {
    let goals = Goal::ALL.iter().enumerate();
    goals
        .filter(|(_, goal)| holds(**goal))
        .map(|(index, _)| 1 << index)
        .sum()
}

/// The state's number, and whether it is a new one.
fn number(scenario: &Scenario, graph: &mut Graph, state: &State, parent: u32) -> (u32, bool) {
    let next = u32::try_from(graph.parents.len()).expect("fewer states than 2^32");
    let fingerprint = graph.hasher.hash_one(state);
    match graph.numbers.entry(fingerprint) {
        Entry::Occupied(known) => (*known.get(), false),
        Entry::Vacant(place) => {
            place.insert(next);
            graph.parents.push(parent);
            graph.met.push(goals(|goal| goal.is_met(scenario, state)));
            (next, true)
        }
    }
}

/// Which states reach the goal: from the states that meet it, backwards.
fn reaching(graph: &Graph, goal: u8) -> Vec<bool> {
    let count = graph.parents.len();
    // Edges sorted by where they lead, as ranges.
    let mut starts = vec![0_u32; count + 1];
    let allowed = || graph.edges.iter().filter(|edge| edge.2 & goal != 0);
    for edge in allowed() {
        starts[edge.1 as usize + 1] += 1;
    }
    for index in 0..count {
        starts[index + 1] += starts[index];
    }
    let mut places = starts.clone();
    let mut sources = vec![0_u32; starts[count] as usize];
    for edge in allowed() {
        let place = &mut places[edge.1 as usize];
        sources[*place as usize] = edge.0;
        *place += 1;
    }
    let mut reaches: Vec<bool> = graph.met.iter().map(|met| met & goal != 0).collect();
    let met = (0..count).filter(|state| reaches[*state]);
    let mut left: Vec<u32> = met
        .map(|state| u32::try_from(state).expect("fewer states than 2^32"))
        .collect();
    while let Some(state) = left.pop() {
        let range = starts[state as usize] as usize..starts[state as usize + 1] as usize;
        for source in &sources[range] {
            if !std::mem::replace(&mut reaches[*source as usize], true) {
                left.push(*source);
            }
        }
    }
    reaches
}

/// The steps that lead to a state, found again by what they come to.
fn way(scenario: &Scenario, graph: &Graph, end: usize) -> (Vec<Step>, State) {
    let mut numbers = vec![end];
    while let Some(&last) = numbers.last() {
        if last == 0 {
            break;
        }
        numbers.push(graph.parents[last] as usize);
    }
    numbers.reverse();
    let mut state = scenario.init_states().remove(0);
    let mut taken = Vec::new();
    for wanted in &numbers[1..] {
        let mut steps = Vec::new();
        scenario.actions(&state, &mut steps);
        let (step, next) = steps
            .into_iter()
            .find_map(|step| {
                let next = scenario.next_state(&state, step)?;
                let number = graph.numbers.get(&graph.hasher.hash_one(next))?;
                (*number as usize == *wanted).then_some((step, next))
            })
            .expect("the way was found before");
        taken.push(step);
        state = next;
    }
    (taken, state)
}
