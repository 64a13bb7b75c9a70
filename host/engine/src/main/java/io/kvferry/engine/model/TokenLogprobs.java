// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

/// Log-probabilities at one generated position, by the model's own logits, before bias, penalties
/// and temperature.
///
/// @param chosen of the token that was chosen
/// @param topTokens the likeliest tokens, likeliest first
/// @param topLogprobs theirs
@SuppressWarnings("ArrayRecordComponent") // made for one position, never changed
public record TokenLogprobs(float chosen, int[] topTokens, float[] topLogprobs) {}
