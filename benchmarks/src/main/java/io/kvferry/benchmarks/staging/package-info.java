// SPDX-License-Identifier: Apache-2.0
/// What a buffer of the staging pool costs.
@NullMarked
package io.kvferry.benchmarks.staging;

import org.jspecify.annotations.NullMarked;
