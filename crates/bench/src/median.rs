//! The median of results of several rounds, figure by figure.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Returns a result in which each figure is its median over all rounds, the upper one of an even
/// number. `None` if there is no round.
pub(crate) fn of_each_figure<T: Serialize + DeserializeOwned>(rounds: &[&T]) -> Option<T> {
    let values: Result<Vec<Value>, _> = rounds.iter().map(serde_json::to_value).collect();
    serde_json::from_value(median(&values.ok()?)).ok()
}

/// The median by a key; the upper one of an even number.
///
/// # Panics
/// If there is none.
pub(crate) fn middle<T>(mut all: Vec<T>, key: impl Fn(&T) -> f64) -> T {
    all.sort_by(|a, b| key(a).total_cmp(&key(b)));
    all.swap_remove(all.len() / 2)
}

/// The median of numbers, of each field of objects, of each element of lists, and of what is not
/// null.
fn median(values: &[Value]) -> Value {
    let known: Vec<&Value> = values.iter().filter(|value| !value.is_null()).collect();
    let of_all = |part: &dyn Fn(&Value) -> Value| {
        let parts: Vec<Value> = known.iter().map(|value| part(value)).collect();
        median(&parts)
    };
    match known.first() {
        None => Value::Null,
        Some(Value::Object(first)) => {
            let field = |name: &String| (name.clone(), of_all(&|value| value[name].clone()));
            Value::Object(first.keys().map(field).collect())
        }
        Some(Value::Array(first)) => {
            let element = |i| of_all(&|value| value[i].clone());
            Value::Array((0..first.len()).map(element).collect())
        }
        Some(_) => {
            let number = |value: &&Value| value.as_f64().unwrap_or(0.0);
            middle(known, number).clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_elements_have_their_own_medians() {
        let of = |rounds: &[Value]| of_each_figure(&rounds.iter().collect::<Vec<_>>());
        let rounds = [
            serde_json::json!({"a": 1, "b": null, "list": [{"c": 9.5}, 1]}),
            serde_json::json!({"a": 3, "b": 7, "list": [{"c": 7.5}, 2]}),
            serde_json::json!({"a": 2, "b": null, "list": [{"c": 8.5}]}),
        ];
        let expected = serde_json::json!({"a": 2, "b": 7, "list": [{"c": 8.5}, 2]});
        assert_eq!(of(&rounds), Some(expected));
        assert_eq!(of(&[]), Some(Value::Null));
    }
}
