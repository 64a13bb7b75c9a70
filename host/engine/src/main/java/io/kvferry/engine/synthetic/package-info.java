// SPDX-License-Identifier: Apache-2.0
/// A runner that computes nothing: it fills the cache with bytes that follow from the tokens,
/// checks every byte that others put there, and takes as long as it is told. For tests, replays and
/// loads at sizes no CPU model reaches.
@NullMarked
package io.kvferry.engine.synthetic;

import org.jspecify.annotations.NullMarked;
