// SPDX-License-Identifier: Apache-2.0
/// The scheduler half of a composite: which child loads what, who is tried next, and what the
/// engine is told of it.
@NullMarked
package io.kvferry.multiconnector.composite.scheduler;

import org.jspecify.annotations.NullMarked;
