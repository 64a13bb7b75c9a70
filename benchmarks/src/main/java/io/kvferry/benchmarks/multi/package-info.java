// SPDX-License-Identifier: Apache-2.0
/// What MultiConnector adds to the connectors below it.
@NullMarked
package io.kvferry.benchmarks.multi;

import org.jspecify.annotations.NullMarked;
