//! Seeds of the random faults: which runs are made, and how to repeat a failing one.

use std::time::Duration;

use farthing_tests::proxy::Fault;

use crate::rounds;

/// Faults in one round.
const FAULTS: u32 = 6;

/// Runs that are always made, before a new one. Add a run that failed.
const KEPT: [Run; 1] = [
    // All kinds of fault in one round.
    Run { seed: 33, faults: FAULTS },
];

/// A sequence of random choices: its seed and its number of faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    seed: u64,
    pub(crate) faults: u32,
}

impl Run {
    /// The run with the seed in `FARTHING_FAULT_SEED`; without it, the kept runs and one with a new seed.
    pub(crate) fn all() -> Vec<Self> {
        let faults = rounds() * FAULTS;
        match std::env::var("FARTHING_FAULT_SEED") {
            Ok(seed) => vec![Self { seed: seed.parse().expect("FARTHING_FAULT_SEED is a number"), faults }],
            Err(_) => KEPT.into_iter().chain([Self { seed: fastrand::u64(..), faults }]).collect(),
        }
    }

    /// The run's choices, from the first.
    pub(crate) fn begin(self) -> Choices {
        Choices { run: self, random: fastrand::Rng::with_seed(self.seed) }
    }
}

/// The choices of a run. If the test panics, the command that repeats them is printed.
#[derive(Debug)]
pub(crate) struct Choices {
    run: Run,
    random: fastrand::Rng,
}

impl Choices {
    /// A fault of any kind.
    pub(crate) fn fault(&mut self) -> Fault {
        match self.random.u8(..6) {
            0 => Fault::LoseAnswer,
            1 => Fault::LoseCommitAnswer,
            2 => Fault::CutWithin(self.random.u16(..1000)),
            3 | 4 => Fault::DeliverLate(Duration::from_micros(self.random.u64(..20_000))),
            _ => Fault::KeepBack,
        }
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.random.u32(..bound)
    }
}

impl Drop for Choices {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            let Run { seed, faults } = self.run;
            let rounds = faults.div_ceil(FAULTS);
            eprintln!(
                "The same faults again: FARTHING_FAULT_SEED={seed} FARTHING_FAULT_ROUNDS={rounds} \
                 cargo test -p farthing-tests --test faults {test}"
            );
        }
    }
}

#[test]
fn the_kept_runs_strike_with_every_kind_of_fault() {
    let kinds = KEPT.into_iter().flat_map(|run| {
        let mut choices = run.begin();
        (0..run.faults).map(move |_| {
            let fault = choices.fault();
            choices.below(40);
            choices.below(30);
            std::mem::discriminant(&fault)
        })
    });
    let kinds: std::collections::HashSet<_> = kinds.collect();
    assert_eq!(kinds.len(), 5);
}
