//! Tests joined by `--or`, `!`, `(` and `)`, in the order of the command line.

use super::options::{Test, Tests};
use crate::target::Target;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};
use std::iter::Peekable;
use std::vec::IntoIter;

/// The name of the positional arguments, which have the parentheses among them.
const TARGETS: &str = "targets";

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    Test(Test),
    Not(Box<Expression>),
    /// All of these; without any, every file passes.
    All(Vec<Expression>),
    /// One of these.
    Any(Vec<Expression>),
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Test(Test),
    Or,
    Not,
    Open,
    Close,
}

impl Expression {
    /// Whether one of its tests is so.
    pub fn contains(&self, is: &dyn Fn(&Test) -> bool) -> bool {
        match self {
            Expression::Test(test) => is(test),
            Expression::Not(not) => not.contains(is),
            Expression::All(parts) | Expression::Any(parts) => {
                parts.iter().any(|part| part.contains(is))
            }
        }
    }

    /// Evaluates it from left to right, until the result is known.
    ///
    /// # Errors
    /// The first error of `passes`.
    pub fn evaluate<E>(&self, passes: &dyn Fn(&Test) -> Result<bool, E>) -> Result<bool, E> {
        match self {
            Expression::Test(test) => passes(test),
            Expression::Not(not) => Ok(!not.evaluate(passes)?),
            Expression::All(parts) => {
                for part in parts {
                    if !part.evaluate(passes)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expression::Any(parts) => {
                for part in parts {
                    if part.evaluate(passes)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}

/// Whether a positional argument is a part of the expression.
pub fn is_token(target: &Target) -> bool {
    token(target).is_some()
}

fn token(target: &Target) -> Option<Token> {
    match target.device.to_str()? {
        "!" => Some(Token::Not),
        "(" => Some(Token::Open),
        ")" => Some(Token::Close),
        _ => None,
    }
}

impl clap::Args for Expression {
    fn augment_args(command: Command) -> Command {
        // Each occurrence of a flag is a value, which has a place in the command line.
        let flag = |name: &'static str| {
            Arg::new(name)
                .long(name)
                .action(ArgAction::Append)
                .num_args(0)
                .default_missing_value("true")
                .value_parser(clap::value_parser!(bool))
                .help_heading("Tests")
        };
        Tests::augment_args(command)
            .arg(flag("or").short('o').help(
                "The tests before it, or those behind it; it joins less than the tests of one side",
            ))
            .arg(
                flag("not").help(
                    "Not the test behind it, or the group in ( ); ! is the same, as in find(1)",
                ),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Expression::augment_args(command)
    }
}

impl FromArgMatches for Expression {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Expression, Error> {
        let mut tokens: Vec<(usize, Token)> = Vec::new();
        for (at, test) in Tests::in_order(matches) {
            tokens.push((at, Token::Test(test)));
        }
        for (name, token) in [("or", Token::Or), ("not", Token::Not)] {
            let places = matches.indices_of(name).into_iter().flatten();
            tokens.extend(places.map(|at| (at, token.clone())));
        }
        let places = matches.indices_of(TARGETS).into_iter().flatten();
        let targets = matches.get_many::<Target>(TARGETS).into_iter().flatten();
        let words = places.zip(targets);
        tokens.extend(words.filter_map(|(at, target)| Some((at, token(target)?))));
        tokens.sort_by_key(|(at, _)| *at);
        let tokens: Vec<Token> = tokens.into_iter().map(|(_, token)| token).collect();
        parse(tokens).map_err(|why| Error::raw(ErrorKind::ValueValidation, format!("{why}\n")))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Expression::from_arg_matches(matches)?;
        Ok(())
    }
}

type Tokens = Peekable<IntoIter<Token>>;

fn parse(tokens: Vec<Token>) -> Result<Expression, String> {
    if tokens.is_empty() {
        return Ok(Expression::All(Vec::new()));
    }
    let mut tokens = tokens.into_iter().peekable();
    let expression = alternatives(&mut tokens)?;
    match tokens.next() {
        None => Ok(expression),
        Some(_) => Err("there is a ) without its (".to_owned()),
    }
}

fn alternatives(tokens: &mut Tokens) -> Result<Expression, String> {
    let mut any = vec![sequence(tokens)?];
    while tokens.next_if_eq(&Token::Or).is_some() {
        any.push(sequence(tokens)?);
    }
    Ok(one_or(any, Expression::Any))
}

/// Tests that must all pass. Several patterns, or types, are alternatives of one test.
fn sequence(tokens: &mut Tokens) -> Result<Expression, String> {
    let mut all: Vec<Expression> = Vec::new();
    while !matches!(tokens.peek(), None | Some(Token::Or | Token::Close)) {
        let operand = operand(tokens)?;
        let same = all.iter_mut().find(|other| same_kind(other, &operand));
        match same {
            Some(Expression::Any(alternatives)) => alternatives.push(operand),
            Some(other) => *other = Expression::Any(vec![other.clone(), operand]),
            None => all.push(operand),
        }
    }
    match all.is_empty() {
        true => Err("a test is missing beside --or or in ( )".to_owned()),
        false => Ok(one_or(all, Expression::All)),
    }
}

fn operand(tokens: &mut Tokens) -> Result<Expression, String> {
    match tokens.next() {
        Some(Token::Test(test)) => Ok(Expression::Test(test)),
        Some(Token::Not) => Ok(Expression::Not(Box::new(operand(tokens)?))),
        Some(Token::Open) => {
            let group = alternatives(tokens)?;
            match tokens.next() {
                // Its tests are not alternatives of those outside.
                Some(Token::Close) => Ok(Expression::All(vec![group])),
                _ => Err("there is a ( without its )".to_owned()),
            }
        }
        _ => Err("a test must follow ! or --not".to_owned()),
    }
}

fn same_kind(one: &Expression, other: &Expression) -> bool {
    let first = match one {
        Expression::Any(alternatives) => alternatives.first(),
        one => Some(one),
    };
    match (first, other) {
        (Some(Expression::Test(a)), Expression::Test(b)) => a.has_alternatives_like(b),
        _ => false,
    }
}

fn one_or(mut parts: Vec<Expression>, of: fn(Vec<Expression>) -> Expression) -> Expression {
    match parts.len() {
        1 => parts.remove(0),
        _ => of(parts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        expression: Expression,
        targets: Vec<Target>,
    }

    fn parsed(line: &str) -> Result<Line, Error> {
        let words = ["find"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words)
    }

    /// Whether a file passes, for which the tests of these inode numbers pass.
    fn passes(line: &str, true_ones: &[i64]) -> bool {
        let passes = |test: &Test| match test {
            Test::Inum(n) => Ok::<_, ()>(true_ones.iter().any(|&i| n.matches(i))),
            _ => unreachable!("only inode numbers here"),
        };
        parsed(line).unwrap().expression.evaluate(&passes).unwrap()
    }

    #[test]
    fn and_joins_more_than_or() {
        let line = "v --inum 1 --inum 2 -o --inum 3 --inum 4";
        assert!(passes(line, &[1, 2]) && passes(line, &[3, 4]));
        assert!(!passes(line, &[1, 4]) && !passes(line, &[2, 3]));
        assert!(passes("v", &[]), "without a test every file passes");
    }

    #[test]
    fn groups_and_negations_are_where_they_stand() {
        let line = "( --inum 1 --or --inum 2 ) --inum 3 v";
        assert!(passes(line, &[1, 3]) && passes(line, &[2, 3]));
        assert!(!passes(line, &[1, 2]) && !passes(line, &[3]));
        let line = "v ! ( --inum 1 -o ! --inum 2 ) --not --inum 3";
        assert!(passes(line, &[2]));
        assert!(!passes(line, &[1, 2]) && !passes(line, &[]) && !passes(line, &[2, 3]));
        assert!(passes("v ! ! --inum 1", &[1]));
        let targets = parsed("v ! --inum 1 w").unwrap().targets;
        let volumes: Vec<_> = targets.iter().filter(|t| !is_token(t)).collect();
        assert_eq!(volumes.len(), 2);
    }

    #[test]
    fn several_patterns_are_alternatives_on_one_side_of_an_or() {
        let kinds = |line: &str| parsed(line).unwrap().expression;
        let Expression::All(parts) = kinds("v --name a --links 2 --name b ! --name c") else {
            panic!("a sequence");
        };
        assert_eq!(parts.len(), 3, "{parts:?}");
        assert!(matches!(&parts[0], Expression::Any(names) if names.len() == 2));
        let Expression::Any(sides) = kinds("v --name a -o --name b --name c") else {
            panic!("two sides");
        };
        assert!(matches!(sides[0], Expression::Test(_)));
        assert!(matches!(&sides[1], Expression::Any(names) if names.len() == 2));
    }

    #[test]
    fn incomplete_expressions_are_refused() {
        for bad in [
            "v --or --inum 1",
            "v --inum 1 -o",
            "v !",
            "v ( --inum 1",
            "v --inum 1 )",
            "v ( )",
            "v --not --or",
            "v ( --inum 1 --or )",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
