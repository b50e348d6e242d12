//! Nodes that move different amounts: those with less are done early and leave the file system
//! to the others, which is another test than the one that was meant.

use super::spread::{Unit, Work};
use super::{Code, Pitfall, Placement};

/// Amounts are alike within this share.
const SHARE_MAX: f64 = 0.01;

fn range(all: impl Iterator<Item = u64> + Clone) -> Option<(u64, u64)> {
    Some((all.clone().min()?, all.max()?))
}

/// Whether nodes, or the ranks of a single one, have done different amounts.
pub(super) fn unequal(
    phase: &'static str,
    unit: Unit,
    works: &[Work],
    placement: &Placement,
) -> Option<Pitfall> {
    let sums = placement.sums(works.iter().map(|one| (one.rank, one.amount)));
    let several = placement.nodes() > 1;
    let (what, least, most) = if several {
        let (least, most) = range(sums.iter().copied())?;
        ("nodes", least, most)
    } else {
        let (least, most) = range(works.iter().map(|one| one.amount))?;
        ("ranks", least, most)
    };
    let share = (most - least) as f64 / most.max(1) as f64;
    if share <= SHARE_MAX {
        return None;
    }
    let who = sums.iter().position(|sum| *sum == least).filter(|_| several);
    let who = who.map_or(String::new(), |node| format!(" (least: {})", placement.name(node)));
    let message = format!(
        "{what} moved between {} and {}{who}: each should do the same",
        unit.amount(least),
        unit.amount(most)
    );
    Some(Pitfall::new(Code::Unequal, Some(phase), share, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(amounts: &[u64], placement: &Placement) -> Option<String> {
        let one = |(rank, amount): (usize, &u64)| Work { rank, amount: *amount, ..Work::default() };
        let works: Vec<Work> = amounts.iter().enumerate().map(one).collect();
        unequal("read", Unit::Bytes, &works, placement).map(|one| one.message)
    }

    #[test]
    fn nodes_with_fewer_ranks_are_found() {
        let uneven = Placement::said(2, 2, 3);
        let said = found(&[1 << 20; 3], &uneven).unwrap();
        let wanted = "nodes moved between 1 MiB and 2 MiB (least: node1): each should do the same";
        assert_eq!(said, wanted);
        assert_eq!(found(&[1 << 20; 4], &Placement::said(2, 2, 4)), None);
        assert_eq!(found(&[2 << 20, 1 << 20, 1 << 20, 2 << 20], &Placement::said(2, 2, 4)), None);
    }

    #[test]
    fn ranks_of_one_node_are_compared_with_each_other() {
        let one = Placement::said(1, 9, 2);
        assert!(found(&[1 << 20, 3 << 20], &one).unwrap().starts_with("ranks moved between"));
        assert_eq!(found(&[1000, 1001], &one), None);
        assert_eq!(found(&[], &one), None);
    }
}
