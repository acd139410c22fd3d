//! Numbers as arguments. A refusal names a valid example.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Parses a number that the option's own help describes.
pub(super) fn number<N: FromStr>(text: &str) -> Result<N, String> {
    parse(text, "a number, such as 2")
}

pub(super) fn position(text: &str) -> Result<u64, String> {
    parse(text, "a position, such as 0 or 5850")
}

pub(super) fn records(text: &str) -> Result<u64, String> {
    parse(text, "a number of records, such as 100")
}

pub(super) fn shard(text: &str) -> Result<u32, String> {
    parse(text, "a shard number, as 'seriatim log show' prints it, such as 0")
}

pub(super) fn node(text: &str) -> Result<u32, String> {
    parse(text, "a node number, as 'seriatim status' prints it, such as 1")
}

pub(super) fn within<N>(range: RangeInclusive<N>) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("give a number from {} to {}", range.start(), range.end()))
    }
}

fn parse<N: FromStr>(text: &str, wanted: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("give {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_that_is_no_number_is_told_what_would_be_one() {
        assert_eq!((position("7"), shard("0"), number::<u64>("3")), (Ok(7), Ok(0), Ok(3)));
        for wrong in ["", "a", "-1", "1.5", "99999999999999999999999"] {
            assert_eq!(position(wrong), Err("give a position, such as 0 or 5850".into()));
            assert!(shard(wrong).is_err() && node(wrong).is_err() && records(wrong).is_err(), "{wrong}");
        }
        let few = within(1..=9_u32);
        assert_eq!([few("1"), few("9")], [Ok(1), Ok(9)]);
        for wrong in ["0", "10", "some", ""] {
            assert_eq!(few(wrong), Err("give a number from 1 to 9".into()));
        }
    }
}
