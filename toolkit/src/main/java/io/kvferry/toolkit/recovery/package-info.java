// SPDX-License-Identifier: Apache-2.0
/// Turns a connector off after a defect and reopens its halves; used by an engine for its
/// connectors and by a composite for its children. Also a close operation that several callers can
/// wait for and that is retried after a failure.
@NullMarked
package io.kvferry.toolkit.recovery;

import org.jspecify.annotations.NullMarked;
