// SPDX-License-Identifier: Apache-2.0
/// The worker side of the step protocol: what runs on a rank, in this process or in a child
/// process.
@NullMarked
package io.kvferry.engine.worker;

import org.jspecify.annotations.NullMarked;
