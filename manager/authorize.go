// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"github.com/rs/zerolog"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/ernic-dev/ernic/fabric/identity"
	ernicv1 "github.com/ernic-dev/ernic/proto/ernic/v1"
)

// calls are the methods of a manager and who may call them. A method that is missing here is nobody's.
var calls = map[string][]identity.Role{
	ernicv1.ManagerService_Session_FullMethodName: {identity.Worker},
	ernicv1.ManagerService_Relay_FullMethodName:   {identity.Worker},

	ernicv1.ManagerService_ListNodes_FullMethodName:   {identity.Operator},
	ernicv1.ManagerService_WatchNodes_FullMethodName:  {identity.Operator},
	ernicv1.ManagerService_ListGids_FullMethodName:    {identity.Operator},
	ernicv1.ManagerService_WatchGids_FullMethodName:   {identity.Operator},
	ernicv1.ManagerService_WatchEvents_FullMethodName: {identity.Operator},
	ernicv1.ManagerService_EvictNode_FullMethodName:   {identity.Operator},
	ernicv1.ManagerService_DrainNode_FullMethodName:   {identity.Operator},
	ernicv1.ManagerService_SetNodeLink_FullMethodName: {identity.Operator},
	ernicv1.ManagerService_WatchMesh_FullMethodName:   {identity.Operator},

	ernicv1.ManagerService_ListManagers_FullMethodName: {identity.Operator},

	healthv1.Health_Check_FullMethodName: identity.Roles(),
	healthv1.Health_List_FullMethodName:  identity.Roles(),
	healthv1.Health_Watch_FullMethodName: identity.Roles(),

	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      identity.Roles(),
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: identity.Roles(),
}

func (s *Server) guard() identity.Guard {
	return identity.Guard{Allow: calls, Refused: func(caller identity.Caller, method string, err error) {
		s.counters.unauthorized.Add(1)
		logRefused(&s.log, caller, method, err)
	}}
}

func logRefused(log *zerolog.Logger, caller identity.Caller, method string, err error) {
	log.Warn().Str("event", "call_refused").Str("caller", caller.String()).Str("method", method).Err(err).
		Msg("a call that the caller may not make")
}
