// SPDX-License-Identifier: Apache-2.0
/// `MultiConnector`, for KV and for the encoder cache: one connector made of several, its
/// *children*.
///
/// - **Loads** come from the child that the policy picks (`first-hit`, `longest-hit`), or from
///   several (`compose`: the prefix from one, the rest from the next). The losers are told an empty
///   load. A load that fails is tried with the next child before the engine hears of it.
/// - **Saves** fan out: every child sees every step. No child ever sees a block as computed before
///   its load is complete, because a hit is answered SYNC only when no other child saves; otherwise
///   the request waits for its load (ASYNC), also when the child that loads works synchronously,
///   and takes part in steps only after it.
/// - **Holds** are counted: the engine sees one, which ends when every child's has ended.
/// - **Names**: transfer ids of a child get its instance name in front at the border of the
///   composite, so children need not know of each other; two of one class and composites in
///   composites work alike. Plans, reports and handshakes travel in one payload with a part per
///   child.
/// - **Failures** stay with the child: what it throws is a miss, a release or a failed transfer of
///   its own.
@NullMarked
package io.kvferry.multiconnector.composite;

import org.jspecify.annotations.NullMarked;
