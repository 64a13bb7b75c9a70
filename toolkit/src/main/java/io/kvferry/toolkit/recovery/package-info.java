// SPDX-License-Identifier: Apache-2.0
/// Turns a connector off after a defect and opens its halves again: the rules that an engine keeps
/// for its connectors and a composite for its children. And a closing that several callers await
/// and that is tried again after a failure.
@NullMarked
package io.kvferry.toolkit.recovery;

import org.jspecify.annotations.NullMarked;
