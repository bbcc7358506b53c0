//! Figures of many values. Must not know: whose.

/// Nearest-rank quantile; NaN of nothing.
pub fn quantile(mut values: Vec<f64>, q: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let rank = (values.len() as f64 * q).ceil() as usize;
    values.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}

/// NaN of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Jain's index: 1 if all are equal, 1 / len if one has everything.
pub fn jain(values: &[f64]) -> f64 {
    let squares: f64 = values.iter().map(|value| value * value).sum();
    values.iter().sum::<f64>().powi(2) / (values.len() as f64 * squares)
}
