//! Rules of a starting player: a changed rule does not change the meaning of past entries.

use std::sync::Arc;

use seriatim_model::Position;

use super::mapping::{Rule, Rules};

/// First position of a new target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begin {
    /// The log's first position.
    #[default]
    Start,
    /// The log's tail at the claim.
    Tail,
    /// A position.
    At(Position),
}

/// The rules of the configured targets, from the rules that the last claim recorded.
///
/// An unchanged rule keeps its position. A changed rule applies from `tail` on, the tail at the new
/// claim; earlier entries keep their rule. The rule of a new target begins at `begin`.
#[must_use]
pub fn rules_at(
    recorded: &[(String, Rules)],
    configured: &Rule,
    begin: Begin,
    tail: Position,
) -> Vec<(String, Rules)> {
    let rule = Arc::new(configured.clone());
    let of_target = |id: &String| {
        let earlier = recorded.iter().find(|(known, _)| known == id).map(|(_, rules)| rules.clone());
        let Some(mut rules) = earlier else {
            let first = match begin {
                Begin::Start => Position::ZERO,
                Begin::Tail => tail,
                Begin::At(position) => position,
            };
            return (id.clone(), vec![(first, rule.clone())]);
        };
        let (first, last) = rules.last().expect("a target has rules").clone();
        if *last != *configured {
            // Rules that no entry used are replaced.
            if first >= tail {
                rules.pop();
            }
            rules.push((first.max(tail), rule.clone()));
        }
        (id.clone(), shared(rules, &rule))
    };
    configured.targets.iter().map(of_target).collect()
}

/// Lets equal rules be one allocation: the mapping maps an entry once for each allocation.
fn shared(rules: Rules, rule: &Arc<Rule>) -> Rules {
    let share = |known: Arc<Rule>| if *known == **rule { rule.clone() } else { known };
    rules.into_iter().map(|(first, known)| (first, share(known))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::player::Map;

    fn rule(targets: &[&str]) -> Rule {
        Rule { map: Map::Key, targets: targets.iter().map(|id| (*id).to_string()).collect() }
    }

    fn firsts(rules: &Rules) -> Vec<u64> {
        rules.iter().map(|(first, _)| first.0).collect()
    }

    #[test]
    fn a_changed_rule_applies_from_the_tail_and_a_new_target_begins_where_it_should() {
        let first = rules_at(&[], &rule(&["a"]), Begin::Start, Position(7));
        assert_eq!(first, vec![("a".into(), vec![(Position(0), Arc::new(rule(&["a"])))])]);
        let same = rules_at(&first, &rule(&["a"]), Begin::Tail, Position(50));
        assert_eq!(firsts(&same[0].1), [0]);

        let second = rules_at(&first, &rule(&["a", "b"]), Begin::At(Position(30)), Position(100));
        assert_eq!(firsts(&second[0].1), [0, 100]);
        assert_eq!(firsts(&second[1].1), [30]);
        assert!(Arc::ptr_eq(&second[0].1[1].1, &second[1].1[0].1));
    }

    #[test]
    fn a_rule_that_no_entry_used_is_replaced() {
        let first = rules_at(&[], &rule(&["a"]), Begin::Tail, Position(100));
        let second = rules_at(&first, &rule(&["a", "b"]), Begin::Tail, Position(100));
        assert_eq!(firsts(&second[0].1), [100]);
        assert_eq!(second[0].1[0].1.targets.len(), 2);
    }
}
