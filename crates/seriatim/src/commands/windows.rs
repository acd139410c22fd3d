//! The window of a log with quotas, for people and programs.

use serde_json::{Value, json};
use seriatim_client::WindowStatus;

/// One line without the name of the log.
pub(crate) fn in_words(status: &WindowStatus) -> String {
    let WindowStatus { number, cuts, made, quotas, lenders, lag_fixes, positions, .. } = status;
    let mut words = vec![format!("window {number}, {made} of {cuts} cuts made")];
    let quotas: Vec<String> = quotas.iter().map(|(shard, quota)| format!("shard {shard}: {quota}")).collect();
    match quotas.is_empty() {
        true => words.push("no quotas".into()),
        false => words.push(format!("quotas of {}", quotas.join(", "))),
    }
    if !lenders.is_empty() && !quotas.is_empty() {
        let lenders: Vec<String> = lenders.iter().map(ToString::to_string).collect();
        words.push(format!("without turns: shard {}", lenders.join(", ")));
    }
    let empty = empty_percent(status);
    words.push(format!(
        "under this leader {lag_fixes} lag fixes, and {empty:.1} % of {positions} positions empty"
    ));
    words.join("; ")
}

pub(crate) fn describe(status: &WindowStatus) -> Value {
    let WindowStatus { number, cuts, made, quotas, lenders, lag_fixes, positions, empty } = status;
    let quotas: Vec<Value> =
        quotas.iter().map(|(shard, quota)| json!({ "shard": shard.0, "quota": quota })).collect();
    json!({
        "number": number,
        "cuts": cuts,
        "made": made,
        "is_free": quotas.is_empty(),
        "quotas": quotas,
        "lenders": lenders.iter().map(|shard| shard.0).collect::<Vec<_>>(),
        "lag_fixes": lag_fixes,
        "positions": positions,
        "empty_positions": empty,
    })
}

fn empty_percent(status: &WindowStatus) -> f64 {
    status.empty as f64 / status.positions.max(1) as f64 * 100.0
}

#[cfg(test)]
mod tests {
    use seriatim_client::ShardId;

    use super::*;

    #[test]
    fn turns_lenders_and_a_free_window_are_told_apart() {
        let quotas = vec![(ShardId(0), 12), (ShardId(2), 3)];
        let keeps = WindowStatus {
            number: 7,
            cuts: 100,
            made: 40,
            quotas,
            positions: 200,
            empty: 3,
            ..Default::default()
        };
        let text = "window 7, 40 of 100 cuts made; quotas of shard 0: 12, shard 2: 3; under this leader 0 lag fixes, and 1.5 % of 200 positions empty";
        assert_eq!(in_words(&keeps), text);
        let lends = WindowStatus { lenders: vec![ShardId(1)], ..keeps.clone() };
        assert!(in_words(&lends).contains("; without turns: shard 1;"), "{}", in_words(&lends));
        let free = WindowStatus { quotas: vec![], ..lends };
        assert!(in_words(&free).contains("; no quotas; under this leader"), "{}", in_words(&free));
        let told = [&keeps, &free].map(|status| describe(status)["is_free"].clone());
        assert_eq!(told, [Value::from(false), Value::from(true)]);
    }
}
