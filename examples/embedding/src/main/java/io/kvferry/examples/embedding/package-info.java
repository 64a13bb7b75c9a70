// SPDX-License-Identifier: Apache-2.0
/// Two ways to use kvferry from an engine: [io.kvferry.examples.embedding.ChainRunner] computes
/// under kvferry's engine; [io.kvferry.examples.embedding.StepLoop] has a step loop of its own and
/// drives a connector through the SPI.
@NullMarked
package io.kvferry.examples.embedding;

import org.jspecify.annotations.NullMarked;
