// SPDX-License-Identifier: Apache-2.0
/// The encoder cache: which multimodal items are in it, who needs them, and how they get there.
/// Scheduler thread only.
@NullMarked
package io.kvferry.engine.encoder;

import org.jspecify.annotations.NullMarked;
