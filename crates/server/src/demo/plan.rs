//! What is done to the two services, in which order.

use super::chance::Chance;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    KillShop,
    KillBilling,
    /// A connection is cut in the middle of a request.
    Cut,
    /// An answer is lost on its way back.
    DropAnswer,
}

/// As many kills as asked for, half of them each service's, and half as many cuts and lost answers in between.
pub(super) fn plan(kills: u32, chance: &mut Chance) -> Vec<Fault> {
    let of = |fault, count: u32| std::iter::repeat_n(fault, count as usize);
    let mut faults: Vec<Fault> = of(Fault::KillShop, kills / 2)
        .chain(of(Fault::KillBilling, kills.div_ceil(2)))
        .chain(of(Fault::Cut, kills.div_ceil(2)))
        .chain(of(Fault::DropAnswer, kills.div_ceil(2)))
        .collect();
    chance.shuffle(&mut faults);
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_plan_with_every_fault_in_it() {
        let of = |seed| plan(9, &mut Chance::new(seed));
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let count = |fault| of(1).into_iter().filter(|of| *of == fault).count();
        let faults = [Fault::KillShop, Fault::KillBilling, Fault::Cut, Fault::DropAnswer];
        assert_eq!(faults.map(count), [4, 5, 5, 5]);
        assert!(plan(0, &mut Chance::new(1)).is_empty());
    }
}
