//! How the tokens of one request are chosen. First cut: the fields; the checks and the rest come with the sampler.

/// Parameters of one request.
#[derive(Clone, Debug)]
pub struct SamplingParams {
    /// Answers per request.
    pub n: u32,
    /// 0 is greedy.
    pub temperature: f32,
    /// 0 is off.
    pub top_k: i64,
    /// 1 is off.
    pub top_p: f32,
    /// 0 is off.
    pub min_p: f32,
    /// 1 is off.
    pub repetition_penalty: f32,
    /// 0 is off.
    pub presence_penalty: f32,
    /// 0 is off.
    pub frequency_penalty: f32,
    /// Added to the logits.
    pub logit_bias: Vec<(u32, f32)>,
    /// None: drawn at submit.
    pub seed: Option<u64>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Tokens that end the answer.
    pub stop_token_ids: Vec<u32>,
    /// Whether the text keeps the stop string.
    pub include_stop_str_in_output: bool,
    /// None: what is left.
    pub max_tokens: Option<u32>,
    /// No end before.
    pub min_tokens: u32,
    /// Don't end at end-of-sequence tokens.
    pub ignore_eos: bool,
    /// How many alternatives to report.
    pub logprobs: Option<u32>,
    /// Hide special tokens from the text.
    pub skip_special_tokens: bool,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            n: 1,
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            include_stop_str_in_output: false,
            max_tokens: None,
            min_tokens: 0,
            ignore_eos: false,
            logprobs: None,
            skip_special_tokens: true,
        }
    }
}
