//! One cut of one workload: how it is named, and what may be wrong with it.

use std::fmt;
use std::str::FromStr;

use twobox_core::{BoxError, Error};
use twobox_sqlite::Durability;
use twobox_testkit::disk::{Cut, Fault, Kind};

use super::workload::{Side, Workload};

/// One cut of one workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What was run.
    pub workload: Workload,
    /// The step of the disk before which the power was cut.
    pub step: usize,
    /// How it was cut; not at all if the run itself went wrong.
    pub cut: Option<Cut>,
    /// Which variant of the cut.
    pub variant: u64,
}

impl Case {
    /// Reads the options that [`Display`](fmt::Display) writes.
    ///
    /// # Errors
    /// If one is unknown, has no value or has one that does not make sense.
    pub fn from_args(args: impl IntoIterator<Item = String>) -> Result<Self, BoxError> {
        let mut case = Self { workload: Workload::new(Side::Shop, 0), step: 0, cut: None, variant: 0 };
        let mut fault = Fault { kind: Kind::Read, nth: u64::MAX };
        let mut args = args.into_iter();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| Error::invalid(format!("{name} has no value")))?;
            let workload = &mut case.workload;
            match name.as_str() {
                "--side" => workload.side = value.parse()?,
                "--seed" => workload.seed = value.parse()?,
                "--messages" => workload.messages = value.parse()?,
                "--durability" => workload.durability = durability(&value)?,
                "--apart" => workload.apart = value.parse()?,
                "--fault" => fault.kind = value.parse()?,
                "--nth" => fault.nth = value.parse()?,
                "--times" => workload.fault_times = value.parse()?,
                "--step" => case.step = value.parse()?,
                "--cut" => case.cut = if value == NO_CUT { None } else { Some(Cut::from_str(&value)?) },
                "--variant" => case.variant = value.parse()?,
                _ => return Err(Error::invalid(format!("no such option: {name}")).into()),
            }
        }
        case.workload.fault = (fault.nth < u64::MAX).then_some(fault);
        Ok(case)
    }
}

const NO_CUT: &str = "none";
const PROCESS_CRASH: &str = "process-crash";

fn durability(text: &str) -> Result<Durability, Error> {
    match text {
        "full" => Ok(Durability::Full),
        PROCESS_CRASH => Ok(Durability::ProcessCrash),
        _ => Err(Error::invalid(format!("no such durability: {text}"))),
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, step, cut, variant } = self;
        let usual = Workload::new(workload.side, workload.seed);
        write!(f, "--side {} --seed {}", workload.side, workload.seed)?;
        if workload.messages != usual.messages {
            write!(f, " --messages {}", workload.messages)?;
        }
        if workload.durability != usual.durability {
            write!(f, " --durability {PROCESS_CRASH}")?;
        }
        if workload.apart {
            write!(f, " --apart true")?;
        }
        if let Some(Fault { kind, nth }) = workload.fault {
            write!(f, " --fault {kind} --nth {nth} --times {}", workload.fault_times)?;
        }
        let cut = cut.map_or_else(|| NO_CUT.to_owned(), |cut| cut.to_string());
        write!(f, " --step {step} --cut {cut} --variant {variant}")
    }
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where.
    pub case: Case,
    /// What is wrong.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, text } = self;
        write!(f, "{text}\n  cargo run --release -p twobox-proof -- powercut {case}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_written() {
        let fault = Some(Fault { kind: Kind::SyncKeepingPages, nth: 7 });
        let plain = Workload::new(Side::Billing, 5);
        let rare = Workload {
            messages: 3,
            durability: Durability::ProcessCrash,
            fault,
            fault_times: 2,
            apart: true,
            ..Workload::new(Side::Queue, 9)
        };
        for (workload, cut) in [(plain, Some(Cut::Torn)), (rare, None), (rare, Some(Cut::Kill))] {
            let case = Case { workload, step: 12, cut, variant: 3 };
            let args = case.to_string();
            assert_eq!(Case::from_args(args.split(' ').map(str::to_owned)).unwrap(), case);
        }
        for wrong in ["--sied shop", "--side", "--side cellar", "--cut half", "--fault all", "--seed x"] {
            assert!(Case::from_args(wrong.split(' ').map(str::to_owned)).is_err(), "{wrong}");
        }
    }
}
