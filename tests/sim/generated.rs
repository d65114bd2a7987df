//! The generated lists, and how they are run.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use proptest::test_runner::{
    Config, FileFailurePersistence, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner,
};
use tokio::runtime::Runtime;

use crate::operation::{Operation, operations};
use crate::world::{Ran, World};

/// Lists of a run of the whole suite: the same each time.
const CASES: u32 = 30;
const LENGTH: usize = 80;
const REGRESSIONS: &str = "tests/sim/regressions/generated.txt";

/// A world with the runtime that drives it, for one thread.
pub struct Simulation {
    runtime: Runtime,
    world: RefCell<World>,
    pub total: RefCell<(usize, Ran)>,
}

impl Simulation {
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let world = RefCell::new(runtime.block_on(World::new()));
        Self {
            runtime,
            world,
            total: RefCell::default(),
        }
    }

    /// A statement on the database under test, before any list.
    pub fn prepare(&self, statement: &str) {
        let world = self.world.borrow();
        self.runtime
            .block_on(world.ground.admin.batch_execute(statement))
            .unwrap();
    }

    /// The one value that a query returns.
    pub fn ask(&self, query: &str) -> String {
        let world = self.world.borrow();
        self.runtime
            .block_on(world.ground.admin.query_one(query, &[]))
            .unwrap()
            .get(0)
    }

    /// How often the lists came to that.
    pub fn met(&self, what: &str) -> usize {
        self.world.borrow().met.get(what).copied().unwrap_or(0)
    }

    pub fn run(&self, operations: &[Operation]) -> Result<(), String> {
        let ran = self
            .runtime
            .block_on(self.world.borrow_mut().run(operations))?;
        let mut total = self.total.borrow_mut();
        total.0 += 1;
        total.1.operations += ran.operations;
        total.1.delivered += ran.delivered;
        Ok(())
    }

    /// Lists from a seed, until one fails; it is shrunk then.
    pub fn search(
        &self,
        config: Config,
        rng: Option<TestRng>,
    ) -> Result<(), (String, Vec<Operation>)> {
        let mut runner = match rng {
            Some(rng) => TestRunner::new_with_rng(config, rng),
            None => TestRunner::new(config),
        };
        let failed = Cell::new(false);
        let result = runner.run(&operations(LENGTH), |list| {
            self.run(&list).map_err(|reason| {
                if !failed.replace(true) {
                    println!(
                        "after {} lists one fails, and is shrunk now: {reason}",
                        self.total.borrow().0
                    );
                }
                TestCaseError::fail(reason)
            })
        });
        result.map_err(|error| match error {
            TestError::Fail(reason, list) => (reason.message().to_owned(), list),
            TestError::Abort(reason) => panic!("no list could be made: {reason}"),
        })
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // The connections' tasks end with the runtime; until then they can be closed.
        let _inside = self.runtime.enter();
    }
}

/// The same lists each time.
pub fn fixed_rng(seed: u8) -> TestRng {
    TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32])
}

#[test]
fn lists_of_operations_do_what_the_model_says() {
    let cases = std::env::var("SIM_CASES")
        .ok()
        .map(|cases| cases.parse().expect("SIM_CASES is a number"));
    let config = Config {
        cases: cases.unwrap_or(CASES),
        max_shrink_iters: 2_000,
        max_shrink_time: u32::try_from(Duration::from_secs(300).as_millis()).unwrap(),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(REGRESSIONS))),
        ..Config::default()
    };
    let simulation = Simulation::new();
    let began = Instant::now();
    // Where it is said how many, they are new ones.
    let rng = cases.is_none().then(|| fixed_rng(7));
    let result = simulation.search(config, rng);
    let (lists, ran) = *simulation.total.borrow();
    println!(
        "{lists} lists, {} operations, {} events accepted, {:.1} s",
        ran.operations,
        ran.delivered,
        began.elapsed().as_secs_f64()
    );
    for (what, times) in &simulation.world.borrow().met {
        println!("{times:7} {what}");
    }
    if let Err((reason, list)) = result {
        panic!(
            "{reason}\nthe shortest list that was found:\n{}",
            printed(&list)
        );
    }
}

/// As it can be pasted into `fixed`.
pub fn printed(list: &[Operation]) -> String {
    list.iter()
        .map(|operation| format!("    Operation::{operation:?},\n"))
        .collect()
}
