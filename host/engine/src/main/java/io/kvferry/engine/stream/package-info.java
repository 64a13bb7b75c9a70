// SPDX-License-Identifier: Apache-2.0
/// The client's end of a request: its tokens and its outcome.
@NullMarked
package io.kvferry.engine.stream;

import org.jspecify.annotations.NullMarked;
