//! A client's questions about the tail.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::{Time, ViewNumber};

/// Timeout of a question.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Open questions, by number. Each has its answers so far (`A`), which count only in the view of
/// the question.
#[derive(Clone, Debug)]
pub struct Tails<A> {
    questions: BTreeMap<u64, Question<A>>,
    last: u64,
}

#[derive(Clone, Debug)]
struct Question<A> {
    asker: Option<u64>,
    view: ViewNumber,
    answers: A,
    asked_at: Time,
}

/// The questions to ask again.
#[derive(Debug, Default)]
pub struct Again {
    /// Their numbers.
    pub requests: Vec<u64>,
    /// Whether a question timed out.
    pub has_timed_out: bool,
}

impl<A> Default for Tails<A> {
    fn default() -> Self {
        Self { questions: BTreeMap::new(), last: 0 }
    }
}

impl<A> Tails<A> {
    /// Whether there is no question.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.questions.is_empty()
    }

    /// When to ask a question again.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.questions.values().map(|question| question.asked_at + ASK_AGAIN).min()
    }

    /// Adds a question for `asker` (`None`: the client itself). `answers` makes its empty answers.
    /// Returns its number.
    pub fn ask(
        &mut self,
        now: Time,
        asker: Option<u64>,
        view: ViewNumber,
        answers: impl FnOnce(u64) -> A,
    ) -> u64 {
        self.last += 1;
        let answers = answers(self.last);
        self.questions.insert(self.last, Question { asker, view, answers, asked_at: now });
        self.last
    }

    /// The answers to a question.
    #[must_use]
    pub fn answers(&self, request: u64) -> Option<&A> {
        self.questions.get(&request).map(|question| &question.answers)
    }

    /// The answers to a question, if it was asked in `view`, the answering member's view.
    pub fn answers_in(&mut self, request: u64, view: ViewNumber) -> Option<&mut A> {
        let question = self.questions.get_mut(&request).filter(|question| question.view == view);
        question.map(|question| &mut question.answers)
    }

    /// Removes an answered question. Returns its caller's token; `None` for the client itself.
    pub fn answered(&mut self, request: u64) -> Option<u64> {
        self.questions.remove(&request)?.asker
    }

    /// A new view begins: [`again`](Self::again) will repeat every question.
    pub fn enter_view(&mut self) {
        for question in self.questions.values_mut() {
            question.asked_at = Time::ZERO;
        }
    }

    /// The questions to ask again. In another view a question gets a new number, so that late
    /// answers of the old view do not count.
    pub fn again(&mut self, now: Time, view: ViewNumber, answers: impl Fn(u64) -> A) -> Again {
        let is_due = |question: &Question<A>| now >= question.asked_at + ASK_AGAIN || question.view != view;
        let due: Vec<u64> = self
            .questions
            .iter()
            .filter(|(_, question)| is_due(question))
            .map(|(request, _)| *request)
            .collect();
        let mut again = Again::default();
        for mut request in due {
            match self.questions.get_mut(&request).filter(|question| question.view == view) {
                Some(question) => {
                    question.asked_at = now;
                    again.has_timed_out = true;
                }
                None => {
                    let asker = self.answered(request);
                    request = self.ask(now, asker, view, &answers);
                }
            }
            again.requests.push(request);
        }
        again
    }

    /// Drops all questions. Returns their callers' tokens.
    pub fn give_up(&mut self) -> impl Iterator<Item = u64> + use<A> {
        std::mem::take(&mut self.questions).into_values().filter_map(|question| question.asker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_keeps_its_number_within_a_view_and_what_was_answered() {
        let (first, second) = (ViewNumber(1), ViewNumber(2));
        let mut tails: Tails<Vec<u64>> = Tails::default();
        assert_eq!(tails.ask(Time(0), Some(7), first, |_| vec![]), 1);
        tails.answers_in(1, first).unwrap().push(5);
        assert!(tails.answers_in(1, second).is_none());
        let at = Time::ZERO + ASK_AGAIN;
        assert_eq!(tails.deadline(), Some(at));
        let again = tails.again(at, first, |_| vec![]);
        assert_eq!((again.requests, again.has_timed_out), (vec![1], true));
        assert_eq!(tails.answers(1), Some(&vec![5]));
        let again = tails.again(at, second, |number| vec![number]);
        assert_eq!((again.requests, again.has_timed_out), (vec![2], false));
        assert_eq!(tails.answers(2), Some(&vec![2]));
        assert_eq!((tails.answered(2), tails.is_empty()), (Some(7), true));
    }
}
