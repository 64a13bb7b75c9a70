// SPDX-License-Identifier: Apache-2.0
/// The `kvferry` command line: one class per command, each thin over a library call.
@NullMarked
package io.kvferry.serving.cli;

import org.jspecify.annotations.NullMarked;
