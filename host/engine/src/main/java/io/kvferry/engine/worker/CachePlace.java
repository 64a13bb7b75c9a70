// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

/// Where in the encoder cache an item lies that is filled from this step on. The same on every
/// rank.
///
/// @param firstRow counted in rows of the encoder's width
public record CachePlace(String hash, int firstRow, int rows) {}
