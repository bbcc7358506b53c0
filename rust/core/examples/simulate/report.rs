//! The figures of a run, as lines for people and as one flat JSON object for programs.
//!
//! Owns: the form. The keys are stable:
//! all scenarios: `scenario`, `seed`, `policy`, `steps`, `seconds` (of this machine), `steps_per_second`;
//! `random`: the counts of `simulation::tally`, each documented there.
//! `fair`: for a light tenant L (`light`: prompts of many steps; `short`: of one) `L_requests`; `L_ttft_p50_ms`,
//! `L_ttft_p99_ms` beside the flood, `L_alone_ttft_p50_ms`, `L_alone_ttft_p99_ms` with the same arrivals alone,
//! `L_ttft_p99_ratio` of the two;
//! `jain_equal_demand`, `jain_unequal_demand`: Jain's index of the tokens served to eight backlogged tenants.
//! `waste`: `requests`; for each choice of victim V (`least_waste`, `youngest`): `V_preemptions`, `V_computed_tokens`,
//! `V_recomputed_tokens`, `V_recomputed_share` of the computed ones, `V_end_s` (simulated time until all is done).
//! `kv`: `requests`, `mean_context_tokens` (of the running sequences, over all steps), `steps_measured`, `kv_waste_mean`, `kv_waste_p99` (the formula is in
//! `scenarios/kv.rs`).
//! `wait`: `requests_per_second_at_most`; for each load L (`steady`, 90 %; `saturated`, 130 %): `L_requests`, `L_waited`
//! (truly), `L_estimated` (of these, the core had said how long), `L_wait_p50_ms`, `L_wait_relative_error_p50`.
//! A figure that cannot be had is null.

use std::fmt::Write as _;

enum Value {
    Text(String),
    Number(f64),
}

/// See the module.
#[derive(Default)]
pub struct Report(Vec<(String, Value)>);

impl Report {
    /// Adds a word.
    pub fn text(&mut self, key: &str, value: impl Into<String>) {
        self.0.push((key.to_owned(), Value::Text(value.into())));
    }

    /// Adds a figure.
    pub fn number(&mut self, key: impl Into<String>, value: f64) {
        self.0.push((key.into(), Value::Number(value)));
    }

    /// For people.
    pub fn lines(&self) -> String {
        let width = self.0.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
        self.0.iter().fold(String::new(), |mut lines, (key, value)| {
            let _ = writeln!(lines, "{key:width$}  {}", value.show());
            lines
        })
    }

    /// For programs.
    pub fn json(&self) -> String {
        let fields: Vec<String> = self
            .0
            .iter()
            .map(|(key, value)| match value {
                Value::Text(text) => format!("  \"{key}\": \"{text}\""),
                Value::Number(number) if number.is_finite() => format!("  \"{key}\": {number}"),
                Value::Number(_) => format!("  \"{key}\": null"),
            })
            .collect();
        format!("{{\n{}\n}}\n", fields.join(",\n"))
    }
}

impl Value {
    fn show(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) if number.fract() == 0.0 => format!("{number}"),
            Self::Number(number) => format!("{number:.4}"),
        }
    }
}
